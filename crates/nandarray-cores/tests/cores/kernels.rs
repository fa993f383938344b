//! Kernels: screens on their windows, by instructions and by functions of this process; errors of screens; and checks
//! of tables that do not say what the functions do.

use std::sync::atomic::AtomicBool;

use nandarray_cores::kernel::{
    KernelCore, KernelFunctions, KernelProgram, ScreenCall, ScreenError, SectionWindow, WindowBytes, share,
};
use nandarray_cores::{LoadError, check, kernel_metered};
use nandarray_hart::Counter;
use serde_json::{Value, json};

use crate::common::elf;

/// Doubles the words of the input's window into the output's window.
const TWICE: &[&str] = &[
    "ld t0, 88(a0)",
    "ld t1, 96(a0)",
    "ld t2, 600(a0)",
    "add t1, t1, t0",
    "bgeu t0, t1, . + 28",
    "ld t3, 0(t0)",
    "add t3, t3, t3",
    "sd t3, 0(t2)",
    "addi t0, t0, 8",
    "addi t2, t2, 8",
    "jal zero, . - 24",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Does with the byte of the input that the first scalar names what the second one says: 0 loads, 1 stores to the same
/// byte of the output.
const REACHES: &[&str] = &[
    "ld t1, 1112(a0)",
    "ld t2, 1120(a0)",
    "bne t2, zero, . + 24",
    "ld t0, 88(a0)",
    "ld t3, 104(a0)",
    "sub t0, t0, t3",
    "add t0, t0, t1",
    "lbu t4, 0(t0)",
    "beq t2, zero, . + 24",
    "ld t0, 600(a0)",
    "ld t3, 616(a0)",
    "sub t0, t0, t3",
    "add t0, t0, t1",
    "sb t1, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Returns the first scalar; loops for ever if it is 99, and breaks if it is 98.
const RETURNS: &[&str] = &[
    "ld a0, 1112(a0)",
    "addi t0, zero, 99",
    "bne a0, t0, . + 8",
    "jal zero, . + 0",
    "addi t0, zero, 98",
    "bne a0, t0, . + 8",
    "ebreak",
    "jalr zero, 0(ra)",
];

fn table(screens: &Value, reads: &Value, writes: &Value) -> Value {
    let block = |entry: &str| json!({"entry": entry, "screens": screens, "reads": reads, "writes": writes});
    json!({
        "abi": 1, "name": "k", "kind": "kernel",
        "inputs": [{"name": "x", "item_bytes": 8}], "outputs": [{"name": "y", "item_bytes": 8}],
        "scalars": [{"name": "first"}, {"name": "second"}],
        "microblocks": [block("twice"), block("reaches"), block("returns")],
    })
}

fn image() -> Vec<u8> {
    elf(&[("nd_kernel_twice", TWICE), ("nd_kernel_reaches", REACHES), ("nd_kernel_returns", RETURNS)], None)
}

fn kernel(screens: &Value, reads: &Value, writes: &Value) -> KernelProgram {
    KernelProgram::from_elf(&image(), table(screens, reads, writes).to_string().as_bytes()).unwrap()
}

/// The functions of the kernel in this process; each reads its argument block as the instructions do.
mod host {
    fn word(block: *mut u8, at: usize) -> u64 {
        // SAFETY: argument blocks have 4096 bytes, aligned to 8.
        unsafe { block.add(at).cast::<u64>().read() }
    }

    pub(super) unsafe extern "C" fn twice(block: *mut u8) -> i64 {
        let (from, bytes, to) = (word(block, 88), word(block, 96), word(block, 600));
        for at in (0..bytes).step_by(8) {
            // SAFETY: the windows have these bytes.
            let word = unsafe { ((from + at) as *const u64).read_unaligned() };
            // SAFETY: as above.
            unsafe { ((to + at) as *mut u64).write_unaligned(word.wrapping_mul(2)) };
        }
        0
    }

    pub(super) unsafe extern "C" fn returns(block: *mut u8) -> i64 {
        word(block, 1112) as i64
    }
}

fn functions() -> KernelFunctions {
    let addresses =
        [host::twice as *const () as usize, host::returns as *const () as usize, host::returns as *const () as usize];
    // SAFETY: these are functions of the type, which reach nothing but the windows of their argument block.
    unsafe { KernelFunctions::new(&addresses) }.unwrap()
}

/// Runs a screen of a microblock on windows of its share of the rows.
fn run(
    core: &mut KernelCore,
    kernel: &KernelProgram,
    (microblock, screen, screens): (usize, u64, u64),
    scalars: &[u64; 2],
    (x, y): (&[u8], &mut [u8]),
    limit: Option<u64>,
) -> Result<(), ScreenError> {
    let rows = x.len() as u64 / 8;
    let own = share(rows, screen, screens);
    let (from, to) = (8 * own.start as usize, 8 * own.end as usize);
    let shape = [rows];
    let window = |bytes| SectionWindow { offset: from as u64, shape: &shape, bytes: Some(bytes) };
    let sections = vec![window(WindowBytes::Read(&x[from..to])), window(WindowBytes::Write(&mut y[from..to]))];
    let call = ScreenCall { microblock, screen, screens, scalars, sections };
    core.run(kernel, call, limit, &AtomicBool::new(false))
}

#[test]
fn screens_do_their_share_in_any_order_by_instructions_and_by_functions() {
    let kernel = kernel(&json!("y"), &json!({"x": "rows"}), &json!({"y": "rows"}));
    let mut interpreter = KernelCore::interpreter(&kernel).unwrap();
    let mut native = KernelCore::native(&kernel, functions());
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (rows, screens) = (chance.usize(..40), chance.u64(1..9));
        let x: Vec<u8> = (0..8 * rows).map(|_| chance.u8(..)).collect();
        let wanted: Vec<u8> =
            x.chunks(8).flat_map(|w| u64::from_le_bytes(w.try_into().unwrap()).wrapping_mul(2).to_le_bytes()).collect();
        for core in [&mut interpreter, &mut native] {
            let mut y = vec![0xee; 8 * rows];
            let mut order: Vec<u64> = (0..screens).collect();
            chance.shuffle(&mut order);
            for screen in order {
                run(core, &kernel, (0, screen, screens), &[0, 0], (&x, &mut y), None).unwrap();
            }
            assert_eq!(y, wanted, "seed {seed}, {core:?}: {rows} rows, {screens} screens");
        }
    }
    assert!(interpreter.instructions() > 0 && native.instructions() == 0);
}

#[test]
fn an_access_beside_a_window_is_named_by_its_byte() {
    let kernel = kernel(&json!("y"), &json!({"x": "rows"}), &json!({"y": "rows"}));
    let mut core = KernelCore::interpreter(&kernel).unwrap();
    let (x, mut y) = (vec![1; 8 * 12], vec![0; 8 * 12]);
    for screen in 0..3 {
        for byte in [-40_000_000, -33_554_432, -33_554_431].into_iter().chain(-20..120i64) {
            for store in [false, true] {
                let scalars = [byte as u64, u64::from(store)];
                let done = run(&mut core, &kernel, (1, screen, 3), &scalars, (&x, &mut y), None);
                let own = 32 * screen as i64..32 * (screen as i64 + 1);
                if own.contains(&byte) {
                    assert_eq!(done, Ok(()), "screen {screen}, byte {byte}");
                    continue;
                }
                // An access far before all sections is no access to one of them.
                if byte < -33_554_432 {
                    assert!(matches!(done, Err(ScreenError::Trap { .. })), "screen {screen}, byte {byte}");
                    continue;
                }
                let (access, section, at) = if store { ("a store", "y", 0x34) } else { ("a load", "x", 0x1c) };
                let said = format!("{access} at byte {byte} of {section}, which it does not map");
                let said = format!("screen {screen} of reaches: {said}, in nd_kernel_reaches+{at:#x}");
                assert_eq!(done.map_err(|e| e.to_string()), Err(said));
            }
        }
    }
}

#[test]
fn a_screen_that_fails_says_how() {
    let kernel = kernel(&json!(1), &json!({"x": "all"}), &json!({"y": "all"}));
    let (x, mut y) = (vec![0; 16], vec![0; 16]);
    let mut of = |core: &mut KernelCore, first: u64, limit: Option<u64>| {
        run(core, &kernel, (2, 0, 1), &[first, 0], (&x, &mut y), limit).map_err(|e| e.to_string())
    };
    let mut core = KernelCore::interpreter(&kernel).unwrap();
    for code in [0, 1, 97, i64::MAX as u64] {
        assert_eq!(of(&mut core, code, None), Ok(()));
        assert_eq!(of(&mut KernelCore::native(&kernel, functions()), code, None), Ok(()));
    }
    for code in [-1i64, -99, i64::MIN] {
        let said = Err(format!("screen 0 of returns: it returned {code}"));
        assert_eq!(of(&mut core, code as u64, None), said);
        assert_eq!(of(&mut KernelCore::native(&kernel, functions()), code as u64, None), said);
    }
    let trap = "screen 0 of returns: breakpoint at pc 0x1008c (value 0x1008c) in nd_kernel_returns+0x18";
    assert_eq!(of(&mut core, 98, None), Err(trap.to_owned()));
    for limit in [0, 1, 5, 1000] {
        let said = of(&mut core, 99, Some(limit)).unwrap_err();
        assert!(
            said.starts_with(&format!("screen 0 of returns: more than {limit} instructions, in nd_kernel_returns")),
            "{said}"
        );
    }
    // A limit that is just enough: the function has six instructions for other numbers.
    assert_eq!(of(&mut core, 5, Some(6)), Ok(()));
    assert!(of(&mut core, 5, Some(5)).is_err());
    let shape = [2];
    let sections = vec![
        SectionWindow { offset: 0, shape: &shape, bytes: None },
        SectionWindow { offset: 0, shape: &shape, bytes: None },
    ];
    let call = ScreenCall { microblock: 2, screen: 0, screens: 1, scalars: &[99, 0], sections };
    let done = core.run(&kernel, call, None, &AtomicBool::new(true));
    assert_eq!(done.unwrap_err().to_string(), "screen 0 of returns: cancelled");
}

#[test]
fn a_check_finds_what_a_table_does_not_say() {
    let sections = || vec![(vec![6], (0..48).collect::<Vec<u8>>()), (vec![6], vec![0; 48])];
    let checked = |table: &Value, elf: &[u8], scalars: [u64; 2]| {
        let kernel = KernelProgram::from_elf(elf, table.to_string().as_bytes()).unwrap();
        check::check(&kernel, &mut sections(), &scalars, 3)
    };
    let only = |entry: usize, screens: Value, reads: Value, writes: Value| {
        let mut table = table(&screens, &reads, &writes);
        let block = table["microblocks"][entry].clone();
        table["microblocks"] = json!([block]);
        table
    };
    let rows = json!({"y": "rows"});
    // Every screen of this function reads or writes one byte, whichever its share is.
    let reads = only(1, json!("y"), json!({"x": "rows"}), rows.clone());
    let said = checked(&reads, &image(), [20, 0]).unwrap();
    let of = |screen: u64, range: &str| {
        format!("screen {screen} of 3 of microblock reaches reads byte 20 of x; its table says {range}")
    };
    assert_eq!(said, [of(0, "0..16"), of(2, "32..48")]);
    let halo = only(1, json!("y"), json!({"x": {"rows": [2, 2]}}), rows.clone());
    assert_eq!(checked(&halo, &image(), [20, 0]).unwrap(), Vec::<String>::new());
    assert_eq!(checked(&halo, &image(), [47, 0]).unwrap(), [of(0, "0..32").replace("byte 20", "byte 47")]);
    let said = checked(&reads, &image(), [20, 1]).unwrap();
    let conflict = |a: u64, b: u64| format!("screens {a} and {b} of reaches conflict at byte 20 of y");
    let writes = |screen: u64, range: &str| {
        format!("screen {screen} of 3 of microblock reaches writes byte 20 of y; its table says {range}")
    };
    assert_eq!(said, [writes(0, "0..16"), conflict(0, 1), writes(2, "32..48"), conflict(0, 2), conflict(1, 2)]);
    // One screen meets no other, and a function that stays inside its parts has nothing to answer for.
    let serial = only(1, json!(1), json!({"x": "all"}), json!({"y": "all"}));
    assert_eq!(checked(&serial, &image(), [20, 1]).unwrap(), Vec::<String>::new());
    let unread = only(1, json!(1), json!({}), json!({"y": "all"}));
    assert_eq!(
        checked(&unread, &image(), [20, 0]).unwrap(),
        ["screen 0 of 1 of microblock reaches reads byte 20 of x; its table says 0..0"]
    );
    let beyond = checked(&serial, &image(), [48, 0]).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "screen 0 of reaches: a load at byte 48 of x, which it does not map, in nd_kernel_reaches+0x1c"
    );
}

#[test]
fn a_meter_sees_what_a_screen_executes() {
    let kernel = kernel(&json!(1), &json!({"x": "all"}), &json!({"y": "all"}));
    for rows in [0u64, 1, 7] {
        let mut sections = vec![(vec![rows], vec![1; 8 * rows as usize]), (vec![rows], vec![0; 8 * rows as usize])];
        let call = check::whole_call(&kernel, &mut sections, &[0, 0], (0, 0, 1));
        let mut meter = kernel_metered::metered_screen(&kernel, Counter::default(), call, None).unwrap();
        assert_eq!(meter.take().total(), 7 + 7 * rows, "{rows} rows");
        assert_eq!(sections[1].1, (0..rows).flat_map(|_| [2u8; 8]).collect::<Vec<_>>());
        let call = check::whole_call(&kernel, &mut sections, &[98, 0], (2, 0, 1));
        let error = kernel_metered::metered_screen(&kernel, Counter::default(), call, None).unwrap_err();
        assert!(matches!(error, ScreenError::Trap { .. }), "{error}");
    }
}

#[test]
fn a_kernel_that_cannot_run_is_refused_by_what_it_lacks() {
    let fine = table(&json!(1), &json!({"x": "all"}), &json!({"y": "all"}));
    let of = |elf: &[u8], table: &Value| {
        KernelProgram::from_elf(elf, table.to_string().as_bytes()).err().map(|e| e.to_string())
    };
    assert_eq!(of(&image(), &fine), None);
    let two = elf(&[("nd_kernel_twice", TWICE), ("nd_kernel_returns", RETURNS)], None);
    let missing = "the program's metadata: microblock reaches: the program has no function nd_kernel_reaches";
    assert_eq!(of(&two, &fine).as_deref(), Some(missing));
    assert!(of(b"", &fine).unwrap().starts_with("not an ELF file"));
    let mut small = fine.clone();
    for (bytes, fits) in [(0, false), (160, false), (1000, true)] {
        small["memory_bytes"] = json!(bytes);
        let found = of(&image(), &small);
        let said = format!("the program needs 160 bytes without a stack; its memory_bytes are {bytes}");
        assert_eq!(found, (!fits).then_some(said), "{bytes} bytes");
    }
    // A segment below the program's memory, and segments at the last addresses.
    for (address, says) in [
        (0xffff_u64, "a segment of 148 bytes at 0xffff makes no sense"),
        (0, "a segment of 148 bytes at 0x0 makes no sense"),
        (u64::MAX - 150, "the program needs"),
    ] {
        let mut moved = image();
        moved[80..88].copy_from_slice(&address.to_le_bytes());
        let found = of(&moved, &fine).unwrap();
        assert!(found.starts_with(says), "{address:#x}: {found}");
    }
    // SAFETY: no function is called.
    assert!(unsafe { KernelFunctions::new(&[8, 0, 8]) }.is_none(), "a function is missing");
    assert!(matches!(KernelProgram::from_elf(&image(), b"{}"), Err(LoadError::Metadata(_))));
}
