"""Device descriptions at their doors: the module, the command line, and every way to describe none."""

from __future__ import annotations

import json
import pickle
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import nandarray
from nandarray import device
from nandarray.cli import app
from nandarray.errors import DescriptionError, InvalidError

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "crates" / "nandarray-model" / "src" / "describe" / "presets"
XML = (PRESETS.parent / "testdata" / "mqsim.xml").read_text()
TINY = (PRESETS / "tiny.toml").read_text()


def call(*words: Any, code: int = 0) -> str:
    """Run one command; give its standard output, or its standard error where it is to fail."""
    result = CliRunner().invoke(app, ["device", *(str(word) for word in words)])
    assert result.exit_code == code, (words, result.output, result.exception)
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


def loads(*words: Any) -> Any:
    return json.loads(call(*words, "--json"), parse_constant=pytest.fail)


# --- the module -------------------------------------------------------------------------------------------------------


def test_presets() -> None:
    files = {path.stem for path in PRESETS.glob("*.toml")} - {"defaults"}
    assert set(device.names()) == files == set(nandarray.devices())
    own = {key.key for key in device.keys() if not key.key.startswith("compute.core.")}  # noqa: SIM118
    for name, found in nandarray.devices().items():
        assert found.name == name
        assert found.summary
        assert found.effective["user_bytes"] > 0
        assert own <= {*found.values}
        for key in found.values:
            assert found.source(key)


def test_what_the_papers_say() -> None:
    nds = device.load("nds-prototype")
    assert nds["geometry.channels"] == 32
    assert (nds["geometry.ways"], nds["geometry.page_size"], nds["link.rate"]) == (8, "4 KiB", "40 Gb/s")
    assert nds.effective["raw_bytes"] == 2 << 40
    assert nds.source("nand.t_read").startswith("assumed")
    abacus = device.load("flashabacus")
    assert (abacus["nand.t_read"], abacus["nand.t_program"]) == ("81 us", "2.6 ms")
    assert abacus.effective["raw_bytes"] == 32 << 30
    assert abacus.effective["bus_bytes_per_s"] == 3_200_000_000
    assasin = device.load("assasin")
    assert assasin.effective["bus_bytes_per_s"] == 8_000_000_000
    assert assasin["link.rate"] == "PCIe 4 x4"
    assert device.load("coden")["nand.t_program"] == "220 us"


def test_with() -> None:
    tiny = device.load("tiny")
    for changed in (
        tiny.with_({"nand.t_erase": "2 ms", "geometry.channels": 2}),
        tiny.with_(nand__t_erase="2 ms", geometry__channels=2),
        tiny.with_(nand={"t_erase": "2 ms"}).with_(geometry={"channels": "2"}),
        tiny.with_(**{"nand.t_erase": "2 ms"}, geometry__channels=2),
    ):
        assert changed.resolved["nand"]["t_erase"] == 2 * 10**9
        assert changed.resolved["geometry"]["channels"] == 2
        assert changed.source("nand.t_erase") == "set by the caller"
        assert changed != tiny
        assert changed == device.Description.parse(changed.to_toml())
        assert len(changed.overrides) == 2
    assert tiny["nand.t_erase"] == "1 ms"
    assert tiny.with_(nand__t_suspend_erase=None)["nand.t_suspend_erase"] == "none"
    assert tiny.with_(nand__t_read=("25 us", "50 us")).resolved["nand"]["t_read"] == [25 * 10**6, 50 * 10**6]
    assert tiny.with_(name="other").name == "other"
    assert tiny.with_() == tiny


def test_description_is_a_value() -> None:
    changed = device.load("tiny").with_(ftl__hot_cold=True)
    again = pickle.loads(pickle.dumps(changed))
    assert again == changed
    assert hash(again) == hash(changed)
    assert again.overrides == changed.overrides
    assert (changed == 1) is False
    assert repr(changed) == "<nandarray.Description 'tiny': 24 MiB, 1 changed>"
    html = changed._repr_html_()
    assert "<details>" in html
    assert "set by the caller" in html
    assert "<script" not in device.load("tiny").with_(name="<script>")._repr_html_()
    assert device.load("mqsim-ideal").bases == ["mqsim-default"]
    assert device.load(changed) is changed


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(device.load("samsung-970-pro").to_toml())
    assert device.load(path) == device.load(str(path)) == device.load("samsung-970-pro")
    with pytest.raises(FileNotFoundError):
        device.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DescriptionError, match="in UTF-8; byte 0 is not"):
        device.load(tmp_path / "bytes.toml")


def test_mqsim(tmp_path: Path) -> None:
    path = tmp_path / "ours.xml"
    path.write_text(XML)
    found, notes = device.import_mqsim(path)
    assert found.name == "ours"
    assert found.resolved["bus"]["bytes_per_s"] == 400_000_000  # and not the 500 that MQSim makes of it
    assert any("500 MT/s" in note["what"] for note in notes)
    assert found.source("geometry.channels") == "MQSim configuration: Flash_Channel_Count"
    path.write_text(XML.replace(">16384<", ">100<"))
    with pytest.raises(DescriptionError, match=r"geometry\.page_size"):
        device.import_mqsim(path)


# --- what is wrong ----------------------------------------------------------------------------------------------------

WRONG = [
    ("channels = 4", "channels = 0", "geometry.channels", "from 1 to 256"),
    ("channels = 4", "channels = 'four'", "geometry.channels", "whole number"),
    ("channels = 4", "chanels = 4", "geometry.chanels", "did you mean geometry.channels"),
    ("channels = 4", "channels = 256\nways2 = 1", "geometry.ways2", "did you mean geometry.ways"),
    ("ways = 1\ndies = 2", "ways = 64\ndies = 64\nplanes2 = 0", "geometry.planes2", "geometry.planes"),
    ('"4 KiB"', '"1000 B"', "geometry.page_size", "512"),
    ('"4 KiB"', '"4 kiB"', "geometry.page_size", "KiB"),
    ('"1 GB/s"', '"100 GB/s"', "bus.rate", "JESD230G"),
    ('"2 GB/s"', '"300 GB/s"', "link.rate", "PCIe 7.0 x16"),
    ('"2 GB/s"', '"PCIe 9 x4"', "link.rate", "236 GB/s"),
    ('"1 ms"', '"1 mA"', "nand.t_erase", "ps, ns, us, ms, s"),
    ('"1 ms"', "1", "nand.t_erase", "from 100 ns to 1 s"),
    ('["20 us", "40 us"]', '["20 us", "40 us", "60 us"]', "nand.t_read", "2 kinds of pages"),
    ("[0, 1, 1, 2, 3]", "[0, 1, 1, 2, 9]", "controller.stage_cores", "0 to 3"),
    ('"25 %"', '"1 %"', "ftl.over_provisioning", "at least 5 blocks"),
    ("[nand]\nsource = \"choice\"", "[nand]", "nand.t_read", "[nand.sources]"),
    ("[dram]", "[drum]", "drum", "did you mean [dram]"),
    ("cell = \"mlc\"", "cell = \"plc\"", "nand.cell", '"qlc"'),
    ("name = \"tiny\"", "name = \"tiny\"\nbase = \"none\"", "base", "mqsim-default"),
    ("name = \"tiny\"", "", "name", "give the device a name"),
    ("name = \"tiny\"", "name = \"tiny", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "allowed"), WRONG)
def test_wrong_descriptions(old: str, new: str, key: str, allowed: str, tmp_path: Path) -> None:
    assert old in TINY
    text = TINY.replace(old, new, 1)
    with pytest.raises(DescriptionError) as raised:
        device.Description.parse(text)
    assert isinstance(raised.value, InvalidError)
    found = [problem for problem in raised.value.problems if problem["key"] == key]
    assert found, raised.value.problems
    assert allowed in found[0]["allowed"]
    assert found[0]["line"] is not None
    assert pickle.loads(pickle.dumps(raised.value)).problems == raised.value.problems

    path = tmp_path / "wrong.toml"
    path.write_text(text)
    told = loads_failing("check", path)
    assert told["ok"] is False
    assert told["problems"] == raised.value.problems
    shown = CliRunner().invoke(app, ["device", "check", str(path)])
    assert shown.exit_code == 1
    assert shown.stdout.count("\n") == len(raised.value.problems)
    assert f"{path}: line " in shown.stdout
    assert call("show", path, code=1).count("\n") == 1


def loads_failing(*words: Any) -> Any:
    result = CliRunner().invoke(app, ["device", *(str(word) for word in words), "--json"])
    assert result.exit_code == 1, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nand.t_raed": "5 us"}, "did you mean nand.t_read"),
        ({"nand.t_read": {"lsb": 1}}, r"nand\.t_read\.lsb"),
        ({"nand.t_read": "5 KiB"}, "nand.t_read"),
        ({"geometry.channels": 2.5}, "whole number"),
        ({"geometry.channels": [1]}, "whole number"),
        ({"geometry.channels": 1e30}, "whole number"),
        ({"geometry.channels": 2**70}, "geometry.channels"),
        ({"geometry.channels": [{"a": 1}]}, "no value of a description"),
        ({"ftl.hot_cold": "maybe"}, "true or false"),
        ({"": 1}, "is no key"),
    ],
)
def test_wrong_changes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        device.load("tiny").with_(changes)


def test_wrong_names() -> None:
    with pytest.raises(DescriptionError, match='did you mean "samsung-970-pro"'):
        device.load("samsung-970pro")
    with pytest.raises(DescriptionError, match="presets are nds-prototype"):
        device.load("x" * 5000)
    with pytest.raises(DescriptionError):
        device.load("nul\0")
    with pytest.raises(InvalidError, match="not a key of descriptions"):
        device.load("tiny")["nand.speed"]
    with pytest.raises(InvalidError, match="not a key of descriptions"):
        device.load("tiny").source("nand")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</Flash_Parameter_Set>", "", "no XML"),
        ("<Flash_Channel_Count>4<", "<Flash_Channel_Count>-4<", "line .*Flash_Channel_Count"),
        ("<Flash_Channel_Count>4<", "<Flash_Channel_Count>4.5<", "no whole number"),
        ("Flash_Channel_Count", "Flash_Channels", "no configuration of MQSim"),
        ("TLC", "PLC", r"nand\.cell"),
        (">0.1<", ">0.001<", r"ftl\.over_provisioning"),
    ],
)
def test_wrong_configurations(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.xml"
    path.write_text(XML.replace(old, new))
    with pytest.raises(DescriptionError, match=message):
        device.import_mqsim(path)
    assert "nandarray: error:" in call("import-mqsim", path, code=1)


# --- the command line -------------------------------------------------------------------------------------------------


def test_list() -> None:
    text = call("list")
    for name in device.names():
        assert name in text
    rows = loads("list")
    assert [row["name"] for row in rows] == device.names()
    assert all(row["raw_bytes"] >= row["user_bytes"] for row in rows)


def test_show(tmp_path: Path) -> None:
    text = call("show", "samsung-970-pro")
    assert "NVMeVirt" in text
    assert "185 us" in text
    assert loads("show", "tiny") == device.load("tiny").to_dict()
    toml = call("show", "tiny", "--toml", "--set", "nand.t_read=[25 us, 50 us]", "--set", "geometry.channels=2")
    (tmp_path / "mine.toml").write_text(toml)
    assert device.load(tmp_path / "mine.toml")["nand.t_read"] == ["25 us", "50 us"]
    assert call("check", tmp_path / "mine.toml").strip().endswith("mine.toml: <nandarray.Description 'tiny': 12 MiB>")
    assert loads("check", tmp_path / "mine.toml") == {"ok": True, "problems": []}
    call("show", "tiny", "--toml", "--json", code=2)
    call("show", "tiny", "--set", "nand.t_read", code=2)
    assert "did you mean" in call("show", "tiny", "--set", "nand.t_raed=5 us", code=1)
    assert "did you mean" in call("show", "tinny", code=1)
    assert "none.toml" in call("show", tmp_path / "none.toml", code=1)
    assert "none.toml" in call("check", tmp_path / "none.toml", code=1)


def test_an_old_spelling_is_read_and_named_once() -> None:
    sp = nandarray.devices()["assasin-sp"]
    device._told.discard("compute.l1d_size")
    with pytest.warns(FutureWarning, match=r"compute\.l1d_size is now compute\.core\.l1d\.size_bytes"):
        old = sp.with_({"compute.l1d_size": "16 KiB"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sp.with_({"compute.l1d_size": "16 KiB"}) == old
        assert sp.with_(compute={"core": {"l1d": {"size_bytes": "16 KiB"}}}) == old
        assert sp.with_(compute__core__l1d__size_bytes=16384) == old
    assert old.resolved["compute"]["core"]["l1d"]["size_bytes"] == 16384
    assert (sp["compute.core.base"], old["compute.core.l1d.size_bytes"]) == ("zou-2023-sp", "16 KiB")
    assert device.Description.parse(old.to_toml()) == old


def test_keys() -> None:
    assert "bus.rate" in call("keys", "bus")
    listed, own = [row["key"] for row in loads("keys")], device.load("tiny").values
    assert [key for key in listed if key in own] == list(own)
    assert {key.rpartition(".")[0] for key in listed if key not in own} >= {"compute.core", "compute.core.vector"}
    assert "sections" not in call("keys")
    call("keys", "buss", code=2)


def test_import(tmp_path: Path) -> None:
    source = tmp_path / "ours.xml"
    source.write_text(XML)
    target = tmp_path / "ours.toml"
    assert call("import-mqsim", source, "-o", target, "--name", "mine") == ""
    assert device.load(target).name == "mine"
    result = CliRunner().invoke(app, ["device", "import-mqsim", str(source)])
    assert result.stdout == device.import_mqsim(source).description.to_toml()
    assert "Made_Up = 7: is not known" in result.stderr
    assert loads("import-mqsim", source)["notes"] == device.import_mqsim(source).notes


# --- the page ---------------------------------------------------------------------------------------------------------


def table() -> str:
    """Make the tables of keys of the reference page."""
    lines: list[str] = []
    section = ""
    listed = device.keys()
    for key in listed:
        if key.key.startswith("compute.core.latency."):
            continue  # a row for each unit, which core-descriptions.md lists
        own, _, name = key.key.partition(".")
        if own != section:
            section = own
            lines += ["", f"### {section}", "", "| key | meaning | takes |", "| --- | --- | --- |"]
        takes = key.allowed.split(", in one of")[0].replace("|", "\\|")
        if ' or "' in key.allowed and ' or "' not in takes:
            takes += ", or" + key.allowed.rsplit(", or", 1)[1]
        bound = f": {key.bound}" if key.bound else ""
        lines.append(f"| `{name}` | {key.meaning} | {takes}{bound} |")
    return "\n".join(lines[1:]) + "\n"


def test_the_page_has_the_table() -> None:
    text = (ROOT / "docs" / "reference" / "devices.md").read_text()
    page = text.split("\n## Keys\n\n")[1]
    assert page == table(), "python tests/python/test_device.py writes the table anew"
    for name in device.names():
        assert f"| `{name}` |" in text


if __name__ == "__main__":
    path = ROOT / "docs" / "reference" / "devices.md"
    head = path.read_text().split("\n## Keys\n\n")[0]
    path.write_text(f"{head}\n## Keys\n\n{table()}")


def test_large_files_take_time_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "large.xml"
    path.write_text("<E>" + "".join(f"<k{i}>1</k{i}>\n" for i in range(60_000)) + "</E>")
    sections = "".join(f"[s{i}]\n" for i in range(60_000))
    began = time.process_time()
    with pytest.raises(DescriptionError, match="no configuration of MQSim"):
        device.import_mqsim(path)
    with pytest.raises(DescriptionError, match="60001 problems"):
        device.Description(sections)
    assert time.process_time() - began < 30  # a time by the square of the size takes minutes
