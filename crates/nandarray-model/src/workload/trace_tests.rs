//! Tests of the parsers: samples as the tools write them, and malformed lines.

use super::*;
use proptest::prelude::*;
use std::io::Write;

const GIB: u64 = 1 << 30;

fn open(text: &str, settings: TraceSettings) -> Result<Trace, WorkloadError> {
    Trace::new(Box::new(Cursor::new(text.as_bytes().to_vec())), Some(text.len() as u64), settings, GIB)
}

fn all(text: &str, settings: TraceSettings) -> Result<Vec<IoRequest>, WorkloadError> {
    let mut trace = open(text, settings)?;
    let mut requests = Vec::new();
    while let Some(request) = trace.next(Ps::ZERO)? {
        requests.push(request);
    }
    assert_eq!(trace.progress(Ps::ZERO), Some(if text.is_empty() { 0.0 } else { 1.0 }));
    Ok(requests)
}

fn brief(text: &str) -> Vec<(Option<f64>, RequestOp, u32, u64, u64)> {
    let requests = all(text, TraceSettings::default()).unwrap();
    requests.iter().map(|r| (r.at.map(Ps::us), r.op, r.stream, r.offset_bytes, r.bytes)).collect()
}

fn refused(text: &str) -> String {
    all(text, TraceSettings::default()).unwrap_err().to_string()
}

use RequestOp::{Flush, Read as R, Trim, Write as W};

const FIO3: &str = "fio version 3 iolog\n2 /dev/nvme0n1 add\n872 /dev/nvme0n1 open\n878 /dev/nvme0n1 write 0 16384\n\
                    888 /dev/nvme0n1 read 16384 4096\n889 /dev/nvme0n1 datasync 0 0\n891 /dev/nvme0n1 trim 4096 8192\n\
                    10001677 /dev/nvme0n1 close\n";

const FIO2: &str = "fio version 2 iolog\n/tmp/a add\n/tmp/b add\n/tmp/a open\n/tmp/b open\n/tmp/a write 0 4096\n\
                    /tmp/b write 0 4096\n/tmp/a wait 250 0\n/tmp/a read 512 4096\n/tmp/b sync 0 0\n/tmp/a close\n";

const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000004211   697  G   W 223490 + 8 [kjournald]
  8,0    3        4     0.000005000   697  P   N [kjournald]
  8,0    3        5     0.000005500   697  I   W 223490 + 8 [kjournald]
  8,0    3        6     0.000006000   697  U   N [kjournald] 1
  8,0    3        7     0.000008000   697  D   W 223490 + 8 [kjournald]
  8,0    1        1     0.000101829  4162  Q   R 1000 + 16 [a b + c, d]
  8,0    1        2     0.000102829  4162  Q FWS [fsync]
  8,0    1        3     0.000103829  4162  Q FWFSM 64 + 8 [jbd2/sda1-8]
  8,0    1        4     0.000104829  4162  Q  DS 4096 + 2048 [fstrim]
  8,0    1        0     0.000105829     0  m   N cfq4162S / alloced
  8,0    3        8     0.000500000     0  C   W 223490 + 8 [0]
CPU1 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           2,        8KiB

Total (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           2,        8KiB
Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 13 entries
Skips: 0 forward (0 -   0.0%)
";

const MSR: &str = "128166372003061629,usr,0,Read,7014609920,24576,41286
128166372016382155,usr,0,Write,2517876736,1024,1963
128166372016382100,usr,1,Write,2517876736,1024,1963\r
";

#[test]
fn fio_version_3() {
    assert_eq!(
        brief(FIO3),
        [
            (Some(878.0), W, 0, 0, 16_384),
            (Some(888.0), R, 0, 16_384, 4096),
            (Some(889.0), Flush, 0, 0, 0),
            (Some(891.0), Trim, 0, 4096, 8192),
        ]
    );
}

#[test]
fn fio_version_2_is_a_closed_loop_with_pauses() {
    let mut trace = open(FIO2, TraceSettings::default()).unwrap();
    assert_eq!((trace.format(), trace.depth()), (Some(TraceFormat::Fio), Some(1)));
    let next = |trace: &mut Trace, us| trace.next(Ps::from_us(us)).unwrap().unwrap();
    let (first, second) = (next(&mut trace, 0), next(&mut trace, 100));
    assert_eq!((first.at, first.stream, first.offset_bytes), (None, 0, 0));
    assert_eq!((second.at, second.stream, second.bytes), (None, 1, 4096));
    assert!(second.offset_bytes > 0 && second.offset_bytes % 4096 == 0, "another file lies elsewhere");
    let third = next(&mut trace, 200);
    assert_eq!((third.at, third.offset_bytes, third.bytes), (Some(Ps::from_us(250)), 512, 4096));
    assert_eq!(next(&mut trace, 300).op, Flush);
    assert_eq!(trace.next(Ps::ZERO).unwrap(), None);
    assert!(trace.notes()[0].contains("no times"), "{:?}", trace.notes());
}

#[test]
fn blkparse_takes_one_event_of_each_request() {
    assert_eq!(
        brief(BLKPARSE),
        [
            (Some(0.0), W, 3, 223_490 * 512, 4096),
            (Some(100.0), R, 1, 512_000, 8192),
            (Some(101.0), Flush, 1, 0, 0),
            (Some(102.0), Flush, 1, 0, 0),
            (Some(102.0), W, 1, 32_768, 4096),
            (Some(103.0), Trim, 1, 4096 * 512, 1 << 20),
        ]
    );
    let issued = TraceSettings { blktrace_event: BlktraceEvent::Issued, ..TraceSettings::default() };
    assert_eq!(all(BLKPARSE, issued).unwrap().len(), 1);
}

#[test]
fn msr_wraps_into_the_device_and_mends_order() {
    let mut trace = open(MSR, TraceSettings::default()).unwrap();
    let mut next = || trace.next(Ps::ZERO).unwrap().unwrap();
    let (first, second, third) = (next(), next(), next());
    assert_eq!((first.at, first.op, first.offset_bytes, first.bytes), (Some(Ps::ZERO), R, 7_014_609_920 % GIB, 24_576));
    assert_eq!(second.at, Some(Ps((128_166_372_016_382_155 - 128_166_372_003_061_629) * 100_000)));
    assert_eq!((third.at, third.stream), (second.at, 1));
    let notes = trace.notes();
    assert!(
        notes[0].starts_with("3 requests lay beyond") && notes[1].starts_with("1 requests were recorded"),
        "{notes:?}"
    );
    let headed = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{MSR}");
    assert_eq!(brief(&headed), brief(MSR));
}

#[test]
fn no_request_reaches_beyond_the_device() {
    let end = GIB - 4096;
    let text = format!(
        "1,h,0,Write,{end},8192,0\n1,h,0,Read,{},8192,0\n1,h,0,Read,100,1000,0\n1,h,0,Read,0,{},0\n",
        u64::MAX - 1,
        2 * GIB
    );
    let requests = all(&text, TraceSettings::default()).unwrap();
    assert_eq!((requests[0].offset_bytes, requests[0].bytes), (GIB - 8192, 8192), "moved back to end with the device");
    assert!(requests[1].offset_bytes + requests[1].bytes <= GIB);
    assert_eq!((requests[2].offset_bytes, requests[2].bytes), (0, 1536), "whole sectors");
    assert_eq!((requests[3].offset_bytes, requests[3].bytes), (0, GIB));
}

#[test]
fn times_scale_and_depth_replaces_them() {
    let fast = TraceSettings { time_scale: 0.5, ..TraceSettings::default() };
    assert_eq!(all(FIO3, fast).unwrap()[1].at, Some(Ps::from_us(444)));
    let closed = TraceSettings { depth: Some(8), requests: Some(2), ..TraceSettings::default() };
    let mut trace = open(MSR, closed).unwrap();
    assert_eq!((trace.depth(), trace.next(Ps(5)).unwrap().unwrap().at), (Some(8), None));
    trace.next(Ps::ZERO).unwrap().unwrap();
    assert_eq!(trace.next(Ps::ZERO).unwrap(), None, "two requests were wanted");
}

#[test]
fn a_malformed_line_is_named_and_shown() {
    for (text, says) in [
        ("hello\n", "line 1 of a trace: expected the first line of an fio iolog"),
        ("fio version 4 iolog\n", "line 1 of an fio iolog: expected \"fio version 2 iolog\" or"),
        (
            "fio version 3 iolog\n\n5 a read x 1\n",
            "line 3 of an fio iolog: expected an offset in bytes, a whole number, found \"5 a read x 1\"",
        ),
        ("fio version 3 iolog\n5 a wait 1 1\n", "version 3 has no wait"),
        ("fio version 3 iolog\n5 a read 1 0\n", "expected a length above 0"),
        ("fio version 3 iolog\n5 a read 1 1 1\n", "expected the end of the line"),
        ("fio version 3 iolog\na read 0 4096\n", "expected a time in microseconds"),
        ("fio version 3 iolog\n18446744073709551615 a read 0 4096\n", "expected a time within 115 days"),
        ("fio version 2 iolog\na\n", "expected an action"),
        ("fio version 2 iolog\na jump 1 2\n", "close, wait, found \"a jump 1 2\""),
        ("8,0 1 1 0.5 1 Q R 1 - 8\n", "line 1 of a blkparse text: expected a plus sign"),
        ("8,0 1 1 zero 1 Q R 1 + 8\n", "expected a time as seconds.nanoseconds"),
        ("8,0 1 1 0.5 1 Q X 1 + 8\n", "expected an RWBS field"),
        ("8,0 1 1 0.5 1 Q R 36028797018963968 + 8\n", "expected a sector below 2^55"),
        ("8,0 1 1 0.5 1 C R 1 + 8\nrubbish\n", "line 2 of a blkparse text: expected a device as major,minor"),
        ("1,h,0,Read,0,512,0\n2,h,0,Erase,0,512,0\n", "line 2 of an MSR Cambridge CSV: expected Read or Write"),
        ("1,h,0,Read,-5,512,0\n", "expected an offset in bytes, a whole number, found \"1,h,0,Read,-5,512,0\""),
        ("1,h,0,Read,0,0,0\n", "expected a size above 0"),
        ("1,h,0,Read,0,1,2,3\n", "expected at most 7 fields"),
    ] {
        let said = refused(text);
        assert!(said.contains(says), "{said}\nlacks {says}");
    }
    let long = refused(&format!("1,h,0,Read,0,1,{}", "7".repeat(100_000)));
    assert!(long.contains("a line of less than 65536 bytes") && long.len() < 300, "{long}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let scale = open(MSR, TraceSettings { time_scale: 0.0, ..TraceSettings::default() }).unwrap_err().to_string();
    assert!(scale.contains("a time scale must be above 0 and at most 1,000,000, not 0"), "{scale}");
    let depth = open(MSR, TraceSettings { depth: Some(0), ..TraceSettings::default() }).unwrap_err().to_string();
    assert!(depth.contains("a queue depth must be from 1 to 65,536, not 0"), "{depth}");
    let none = Trace::open(Path::new("/nowhere/at/all"), TraceSettings::default(), GIB).unwrap_err().to_string();
    assert!(none.contains("reading the trace failed"), "{none}");
}

#[test]
fn gzip_is_unpacked_on_the_way() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(MSR.as_bytes()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), packed.finish().unwrap()).unwrap();
    let mut trace = Trace::open(file.path(), TraceSettings::default(), GIB).unwrap();
    let mut n = 0;
    while trace.next(Ps::ZERO).unwrap().is_some() {
        n += 1;
    }
    assert_eq!((n, trace.progress(Ps::ZERO)), (3, Some(1.0)));
    std::fs::write(file.path(), [0x1f, 0x8b, 8, 0, 1, 2]).unwrap();
    let error = Trace::open(file.path(), TraceSettings::default(), GIB).unwrap_err().to_string();
    assert!(error.contains("near line 1"), "{error}");
}

#[test]
fn an_empty_trace_has_no_requests() {
    assert!(all("", TraceSettings::default()).unwrap().is_empty());
    assert!(all("\n\n", TraceSettings::default()).unwrap().is_empty());
    assert!(all("fio version 3 iolog\n", TraceSettings::default()).unwrap().is_empty());
}

/// A trace without end, whose lines are generated as they are read.
struct Endless(u64, Vec<u8>);

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            for _ in 0..1000 {
                self.0 += 1;
                writeln!(self.1, "{},h,0,Write,{},4096,1", self.0, self.0 * 4096)?;
            }
        }
        let n = buf.len().min(self.1.len());
        buf[..n].copy_from_slice(&self.1[..n]);
        self.1.drain(..n);
        Ok(n)
    }
}

#[test]
fn a_trace_is_streamed() {
    let mut trace = Trace::new(Box::new(Endless(0, Vec::new())), None, TraceSettings::default(), GIB).unwrap();
    for n in 0..100_000u64 {
        assert_eq!(trace.next(Ps::ZERO).unwrap().unwrap().at, Some(Ps(n * 100_000)));
    }
    assert_eq!(trace.progress(Ps::ZERO), None);
    assert!(trace.read.load(Ordering::Relaxed) < 5_000_000, "no more is read than requested");
}

proptest! {
    /// Samples with changed, cut and joined bytes give requests within the device in order of time, or an error with a
    /// line.
    #[test]
    fn hostile_lines(
        sample in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 0..12),
    ) {
        let mut bytes = [FIO2, FIO3, BLKPARSE, MSR][sample].as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len().max(1));
            match how {
                _ if bytes.is_empty() => {}
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte),
                _ => bytes[at] = b"0189,. +\n-RWQDF"[byte as usize % 15],
            }
        }
        super::super::fuzz::trace(&bytes);
    }

    #[test]
    fn what_is_written_is_read(
        requests in prop::collection::vec((0u64..1 << 40, 0u64..2, 0u64..1 << 20, 1u64..256), 1..50),
    ) {
        let mut text = String::new();
        let mut at = 0;
        let mut want = Vec::new();
        for (n, &(wait, write, sector, sectors)) in requests.iter().enumerate() {
            at += if n == 0 { 0 } else { wait % 1_000_000 };
            let (name, op) = [("R", R), ("W", W)][write as usize];
            let (s, ns) = (at / 1_000_000_000, at % 1_000_000_000);
            text += &format!("259,0 {} {} {s}.{ns:09} 1 Q {name} {sector} + {sectors} [x]\n", n % 4, n + 1);
            let (offset_bytes, bytes) = (sector * 512, sectors * 512);
            want.push(IoRequest { at: Some(Ps::from_ns(at)), op, stream: n as u32 % 4, offset_bytes, bytes });
        }
        let got = all(&text, TraceSettings::default()).unwrap();
        for (got, want) in got.iter().zip(&want).filter(|(_, w)| w.offset_bytes + w.bytes <= GIB) {
            prop_assert_eq!(got, want);
        }
        prop_assert_eq!(got.len(), want.len());
    }
}

/// A reader that returns a byte or a few at a time, sometimes interrupted, and fails at a place if there is one.
struct Halting {
    bytes: Vec<u8>,
    at: usize,
    fails_at: Option<usize>,
    chance: fastrand::Rng,
}

impl Read for Halting {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.chance.u8(0..4) == 0 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let end = self.fails_at.unwrap_or(self.bytes.len());
        if self.at == end && self.fails_at.is_some() {
            return Err(std::io::Error::other("the disk is gone"));
        }
        let n = self.chance.usize(1..20).min(buf.len()).min(end - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

/// Returns the requests of a trace until its end or its first error.
fn until_error(source: Box<dyn Read + Send>) -> (Vec<IoRequest>, Option<WorkloadError>) {
    let mut trace = match Trace::new(source, None, TraceSettings::default(), GIB) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut requests = Vec::new();
    loop {
        match trace.next(Ps::ZERO) {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => return (requests, None),
            Err(error) => return (requests, Some(error)),
        }
    }
}

/// A trace that is cut at any byte gives the requests of its whole lines; its last line is read as it is, or named.
#[test]
fn a_trace_that_is_cut_gives_its_whole_lines() {
    for text in [FIO2, FIO3, BLKPARSE, MSR] {
        let whole = all(text, TraceSettings::default()).unwrap();
        for cut in 0..=text.len() {
            let part = &text[..cut];
            let lines = part.matches('\n').count();
            let (found, error) = until_error(Box::new(Cursor::new(part.as_bytes().to_vec())));
            let kept = all(&part[..part.rfind('\n').map_or(0, |at| at + 1)], TraceSettings::default());
            let kept = kept.unwrap_or_default();
            assert!(whole.starts_with(&kept) && found.starts_with(&kept), "cut at byte {cut}: {found:?}");
            assert!(found.len() <= kept.len() + 2, "cut at byte {cut}: a line has one request, or a flush before it");
            if let Some(error) = error {
                let WorkloadError::Line { line, .. } = error else { panic!("cut at byte {cut}: {error}") };
                assert_eq!(line as usize, lines + 1, "cut at byte {cut}: {error}");
                assert_eq!(found.len(), kept.len(), "cut at byte {cut}");
            }
        }
    }
}

#[test]
fn a_compressed_trace_that_is_cut_or_flipped_gives_a_prefix_and_an_error() {
    let long: String = (0..400).map(|n| format!("{n},h,0,Write,{},4096,1\n", n * 4096)).collect();
    let whole = all(&long, TraceSettings::default()).unwrap();
    let bytes = packed(&long);
    for cut in (0..bytes.len()).step_by(7).skip(1) {
        let (found, error) = until_error(Box::new(Cursor::new(bytes[..cut].to_vec())));
        assert!(whole.starts_with(&found), "cut at byte {cut}");
        assert!(matches!(error, Some(WorkloadError::Io { .. } | WorkloadError::Line { .. })), "cut at byte {cut}");
    }
    let mut chance = fastrand::Rng::with_seed(8);
    for _ in 0..300 {
        let (at, bit) = (chance.usize(2..bytes.len()), chance.u8(0..8));
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        // Heads have fields that do not matter, such as a time; data has a checksum, which comes last.
        let (found, error) = until_error(Box::new(Cursor::new(flipped)));
        assert!(error.is_some() || found == whole, "bit {bit} of byte {at}");
    }
    // Two members, as parallel compressors write them, are one trace.
    let (first, second) = long.split_at(long.find("200,").unwrap());
    let joined = [packed(first), packed(second)].concat();
    assert_eq!(until_error(Box::new(Cursor::new(joined))).0, whole);
}

#[test]
fn a_reader_that_halts_is_read_on_and_one_that_fails_is_named_with_its_line() {
    for seed in 0..40 {
        let text = [FIO2, FIO3, BLKPARSE, MSR][seed % 4];
        let whole = all(text, TraceSettings::default()).unwrap();
        let mut chance = fastrand::Rng::with_seed(seed as u64);
        let bytes = if chance.bool() { packed(text) } else { text.as_bytes().to_vec() };
        let plain = bytes == text.as_bytes();
        let halting = |fails_at: Option<usize>, chance: &mut fastrand::Rng| {
            Box::new(Halting { bytes: bytes.clone(), at: 0, fails_at, chance: chance.fork() })
        };
        let (found, error) = until_error(halting(None, &mut chance));
        assert!(error.is_none() && found == whole, "seed {seed}: {error:?}");
        let at = chance.usize(0..bytes.len());
        let (found, error) = until_error(halting(Some(at), &mut chance));
        assert!(whole.starts_with(&found), "seed {seed}, fails at byte {at}");
        let Some(WorkloadError::Io { line, error }) = error else {
            // The summary of a blkparse text is not read to its end.
            assert!(text == BLKPARSE && found == whole, "seed {seed}, fails at byte {at}: {error:?}");
            continue;
        };
        assert!(error.to_string().contains("the disk is gone"), "seed {seed}: {error}");
        let lines = text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert!(!plain || line == 1 || line == lines + 1, "seed {seed}, byte {at}: line {line} behind {lines} lines");
    }
}

/// Places of records by arithmetic on wide integers: whole sectors, modulo the device, never across its end.
#[test]
fn records_are_placed_as_wide_arithmetic_places_them() {
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let bits = chance.u32(1..24);
        let capacity = 512 * chance.u64(1..1 << bits);
        let records: Vec<(u64, u64)> = (0..60)
            .map(|_| (chance.u64(..) >> chance.u32(0..50), 1 + (chance.u64(..) >> chance.u32(20..60))))
            .collect();
        let lines: String =
            records.iter().enumerate().map(|(n, (at, bytes))| format!("{n},h,0,Read,{at},{bytes},0\n")).collect();
        let source = Box::new(Cursor::new(lines.into_bytes()));
        let mut trace = Trace::new(source, None, TraceSettings::default(), capacity + seed % 512).unwrap();
        let (mut wrapped, mut cut) = (0, 0);
        for &(at, bytes) in &records {
            let found = trace.next(Ps::ZERO).unwrap().unwrap();
            let wide = u128::from(capacity);
            let begin = u128::from(at) / 512 * 512;
            let end = (u128::from(at) + u128::from(bytes)).min(u128::from(u64::MAX)).div_ceil(512) * 512;
            let length = (end - begin).min(wide);
            let place = (begin % wide).min(wide - length);
            assert_eq!(
                (u128::from(found.offset_bytes), u128::from(found.bytes)),
                (place, length),
                "seed {seed}: {bytes} B at {at} of a device of {capacity} B"
            );
            wrapped += u64::from(place != begin);
            cut += u64::from(end - begin > wide);
        }
        let notes = trace.notes();
        for (n, what) in [(wrapped, "lay beyond the device"), (cut, "were larger than the device")] {
            let note = notes.iter().find(|note| note.contains(what));
            let number = note.map_or(0, |note| note.split(' ').next().unwrap().parse().unwrap());
            assert_eq!(number, n, "seed {seed}: {notes:?}");
        }
    }
}

/// Files of an iolog begin at places of their own, spread over the device.
#[test]
fn files_lie_apart() {
    let mut text = "fio version 2 iolog\n".to_owned();
    (0..200).for_each(|n| text += &format!("/f{n} read 0 4096\n"));
    let mut trace =
        Trace::new(Box::new(Cursor::new(text.into_bytes())), None, TraceSettings::default(), 1 << 40).unwrap();
    let mut places: Vec<u64> = (0..200).map(|_| trace.next(Ps::ZERO).unwrap().unwrap().offset_bytes).collect();
    assert_eq!(places[0], 0);
    places.sort_unstable();
    let gaps: Vec<u64> = places.windows(2).map(|two| two[1] - two[0]).chain([(1 << 40) - places[199]]).collect();
    let even = (1u64 << 40) / 200;
    // By the three-distance theorem, gaps of the golden ratio's multiples differ by a factor of at most 2.618.
    assert!(gaps.iter().all(|&gap| gap > even / 3 && gap < even * 3), "{gaps:?}");
    assert!(places.iter().all(|place| place % (1 << 20) == 0));
}
