//! The binary interface between a program and its core, version 1: addresses, and the argument block.
//!
//! docs/reference/program-abi.md is the specification. Everything is 64 bits, little-endian, on 32-bit harts too.

/// Version number of the interface.
pub const ABI: u64 = 1;
/// Name of the ELF section that holds the program's metadata.
pub const SECTION: &str = ".nandarray.program";
/// First address of program memory.
pub const IMAGE_ADDRESS: u64 = 0x0001_0000;
/// Greatest size of program memory, in bytes: it ends where the argument block begins.
pub const MEMORY_BYTES_MAX: u64 = ARGS_ADDRESS - IMAGE_ADDRESS;
/// Address of the argument block.
pub const ARGS_ADDRESS: u64 = 0x0800_0000;
/// Size of the argument block, in bytes.
pub const ARGS_BYTES: u64 = 4096;
/// First address of the scratchpad.
pub const SCRATCHPAD_ADDRESS: u64 = 0x1000_0000;
/// Least size of a scratchpad, in bytes; a program may request more.
pub const SCRATCHPAD_BYTES: u64 = 64 << 10;
/// Greatest size of a scratchpad, in bytes.
pub const SCRATCHPAD_BYTES_MAX: u64 = 0x1000_0000;
/// Address of the first input window.
pub const INPUT_ADDRESS: u64 = 0x2000_0000;
/// Address of the first output window.
pub const OUTPUT_ADDRESS: u64 = 0x6000_0000;
/// Distance from the beginning of one window to that of the next, and greatest size of a window, in bytes.
pub const WINDOW_BYTES: u64 = 0x0400_0000;
/// Greatest size of a stream of one task, in bytes: it is in the host's memory while the task runs, in no window.
pub const STREAM_BYTES_MAX: u64 = 1 << 30;
/// Address of the first window of a kernel on a 64-bit hart, where a window may be larger than [`WINDOW_BYTES`].
pub const SECTION_ADDRESS: u64 = 0x1_0000_0000;
/// Distance from the beginning of one such window of a kernel to that of the next, in bytes.
pub const SECTION_BYTES: u64 = 0x10_0000_0000;
/// Greatest number of inputs of a program; also of outputs.
pub const PORTS_MAX: usize = 8;
/// Greatest number of scalars of a program.
pub const SCALARS_MAX: usize = 16;

const INPUTS_AT: usize = 88;
const OUTPUTS_AT: usize = 600;
const PORT_BYTES: usize = 64;
const SCALARS_AT: usize = 1112;
const SCREEN_AT: usize = 1240;
/// Offset of the words that a function which returns an error notes beside it. A program notes two: of an index out of
/// range, the index and the size. A kernel that returns [`OUTSIDE`] notes seven: the number of the section, from 1, the
/// dimension, the index, the extent along it, the row and the innermost loop's turn (each `i64::MIN` where there is
/// none), and the line.
const NOTED_AT: usize = 1256;
const FIRST_AT: usize = 1312;
const TOTAL_AT: usize = 1344;
const PACES_AT: usize = 1376;
/// Return value of a kernel that has noted a subscript outside of its section.
pub(crate) const OUTSIDE: i64 = i64::MIN;

/// An input or output as a program sees it in one call.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// Address of the port's window; 0 if the port is a stream, or is not used by this call.
    pub address: u64,
    /// Length of an input, room for an output, or length of a kernel's window, in bytes.
    pub bytes: u64,
    /// Offset of a kernel's window within its section, in bytes; 0 for programs.
    pub offset: u64,
    /// Shape of the port's data, counted in records: 1 to 4 dimensions.
    pub shape: Vec<u64>,
}

/// The place of a task in an input that has a pace of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputPace {
    /// Number of the first record that the task sees.
    pub first: u64,
    /// Whether the input is known to end with the last record that the task sees.
    pub ended: bool,
}

/// The arguments of one call.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Inputs of the program, in the order of its metadata.
    pub inputs: Vec<Port>,
    /// Outputs of the program, in the order of its metadata.
    pub outputs: Vec<Port>,
    /// Values of the scalars, as bit patterns.
    pub scalars: Vec<u64>,
    /// Number of the task.
    pub task: u64,
    /// Number of the task's first record, counted from the beginning of the first input.
    pub first_record: u64,
    /// Address of the state: the memory that a program keeps from one task to the next.
    pub state: u64,
    /// Length of the state, in bytes.
    pub state_bytes: u64,
    /// Address of the state that `nd_merge` merges into `state`; 0 in all other calls.
    pub other_state: u64,
    /// Address of the scratchpad's part that the program may use freely, after the states.
    pub scratchpad: u64,
    /// Length of that part of the scratchpad, in bytes.
    pub scratchpad_bytes: u64,
    /// Number of the screen that a kernel's call executes, from 0 on.
    pub screen: u64,
    /// Number of screens of the microblock that the call belongs to.
    pub screens: u64,
    /// Place of the task's first element in the first input: coordinates in a box, or the number of the first record.
    pub first: Vec<u64>,
    /// Shape of the whole first input: of the box, or the number of its records, all ones if that is not known.
    pub total: Vec<u64>,
    /// Place of the task in each input, if the inputs have paces of their own; else empty.
    pub paces: Vec<InputPace>,
}

impl Arguments {
    /// Writes the arguments into an argument block, in the layout of the interface.
    ///
    /// # Panics
    /// If there are more ports or scalars than fit, or the block is not [`ARGS_BYTES`] long.
    pub fn write(&self, block: &mut [u8]) {
        assert!(self.inputs.len() <= PORTS_MAX && self.outputs.len() <= PORTS_MAX, "at most {PORTS_MAX} ports");
        assert!(self.scalars.len() <= SCALARS_MAX, "at most {SCALARS_MAX} scalars");
        assert_eq!(block.len() as u64, ARGS_BYTES);
        block.fill(0);
        let mut put = |at: usize, value: u64| block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let counts = [self.inputs.len(), self.outputs.len(), self.scalars.len()].map(|n| n as u64);
        let head = [
            [ABI, counts[0], counts[1], counts[2], self.task, self.first_record].as_slice(),
            &[self.state, self.state_bytes, self.other_state, self.scratchpad, self.scratchpad_bytes],
        ]
        .concat();
        for (i, value) in head.into_iter().enumerate() {
            put(i * 8, value);
        }
        for (from, ports) in [(INPUTS_AT, &self.inputs), (OUTPUTS_AT, &self.outputs)] {
            for (i, port) in ports.iter().enumerate() {
                let at = from + i * PORT_BYTES;
                let dims = port.shape.len().min(4);
                put(at, port.address);
                put(at + 8, port.bytes);
                put(at + 16, port.offset);
                put(at + 24, dims.max(1) as u64);
                for d in 0..4 {
                    put(at + 32 + d * 8, if d < dims { port.shape[d] } else { 1 });
                }
            }
        }
        for (i, scalar) in self.scalars.iter().enumerate() {
            put(SCALARS_AT + i * 8, *scalar);
        }
        put(SCREEN_AT, self.screen);
        put(SCREEN_AT + 8, self.screens);
        for d in 0..4 {
            put(FIRST_AT + d * 8, self.first.get(d).copied().unwrap_or(0));
            put(TOTAL_AT + d * 8, self.total.get(d).copied().unwrap_or(1));
        }
        for (i, pace) in self.paces.iter().enumerate() {
            put(PACES_AT + i * 16, pace.first);
            put(PACES_AT + i * 16 + 8, u64::from(pace.ended));
        }
    }

    /// Returns the number of bytes that the program reports in the argument block as written to an output.
    ///
    /// # Panics
    /// If `output` is not below [`PORTS_MAX`].
    pub fn used(block: &[u8], output: usize) -> u64 {
        word(block, OUTPUTS_AT, output)
    }

    /// Returns the words that a function which failed noted beside its status: the first `N` of them.
    pub(crate) fn noted<const N: usize>(block: &[u8]) -> [i64; N] {
        let word = |n: usize| i64::from_le_bytes(block[NOTED_AT + 8 * n..][..8].try_into().expect("eight bytes"));
        std::array::from_fn(word)
    }

    /// Returns the field `used` of an input: the bytes that the program took of an input with a pace of its own, after
    /// a stream that ended within an element 1 + the bytes left, else 0.
    ///
    /// # Panics
    /// If `input` is not below [`PORTS_MAX`].
    pub(crate) fn taken(block: &[u8], input: usize) -> u64 {
        word(block, INPUTS_AT, input)
    }
}

/// Reads the field `used` of a port; `ports` is the offset of the first port of its kind in the block.
fn word(block: &[u8], ports: usize, port: usize) -> u64 {
    assert!(port < PORTS_MAX);
    let at = ports + port * PORT_BYTES + 16;
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the address of an input's window.
pub fn input_window(input: usize) -> u64 {
    INPUT_ADDRESS + input as u64 * WINDOW_BYTES
}

/// Returns the address of an output's window.
pub fn output_window(output: usize) -> u64 {
    OUTPUT_ADDRESS + output as u64 * WINDOW_BYTES
}
