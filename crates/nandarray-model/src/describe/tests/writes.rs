//! Descriptions written as TOML and JSON.

use crate::describe::{Sheet, presets};

#[test]
fn what_is_written_reads_as_the_same() {
    for name in presets() {
        let sheet = Sheet::preset(name).unwrap();
        let text = sheet.to_toml();
        let again = Sheet::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again.description().unwrap(), sheet.description().unwrap(), "{name}");
        for ((key, a), (_, b)) in again.entries().zip(sheet.entries()) {
            assert_eq!((&a.value, &a.source), (&b.value, &b.source), "{name} {}", key.path);
        }
        assert_eq!(again.to_toml(), text);
    }
}

#[test]
fn json_has_all() {
    let json = Sheet::preset("mqsim-ideal").unwrap().to_json().unwrap();
    assert_eq!(json["values"]["ftl"]["map_cache"]["from"], "mqsim-ideal");
    assert_eq!(json["values"]["geometry"]["channels"]["from"], "mqsim-default");
    assert_eq!(json["resolved"]["nand"]["t_read"][0], 75_000_000);
    assert_eq!(json["effective"]["raw_bytes"], 512u64 << 30);
}
