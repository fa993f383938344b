//! The binary interface between a program and its core, version 1: addresses, and the argument block.
//!
//! docs/reference/program-abi.md is the specification. Everything is 64 bits, little-endian, on 32-bit harts too.

/// The version of the interface.
pub const ABI: u64 = 1;
/// The ELF section with the metadata.
pub const SECTION: &str = ".nandarray.program";
/// First address of program memory.
pub const IMAGE_ADDRESS: u64 = 0x0001_0000;
/// The most bytes of program memory: up to the argument block.
pub const MEMORY_BYTES_MAX: u64 = ARGS_ADDRESS - IMAGE_ADDRESS;
/// Address of the argument block.
pub const ARGS_ADDRESS: u64 = 0x0800_0000;
/// Its bytes.
pub const ARGS_BYTES: u64 = 4096;
/// First address of the scratchpad.
pub const SCRATCHPAD_ADDRESS: u64 = 0x1000_0000;
/// Its bytes, if a program does not need more.
pub const SCRATCHPAD_BYTES: u64 = 64 << 10;
/// The most of them.
pub const SCRATCHPAD_BYTES_MAX: u64 = 0x1000_0000;
/// Address of the first input window.
pub const INPUT_ADDRESS: u64 = 0x2000_0000;
/// Address of the first output window.
pub const OUTPUT_ADDRESS: u64 = 0x6000_0000;
/// Distance from one window to the next, and the most bytes of one.
pub const WINDOW_BYTES: u64 = 0x0400_0000;
/// First address of a kernel's windows on a hart of 64 bits, where a window may be larger.
pub const SECTION_ADDRESS: u64 = 0x1_0000_0000;
/// Distance from one of these to the next.
pub const SECTION_BYTES: u64 = 0x10_0000_0000;
/// The most inputs, and the most outputs.
pub const PORTS_MAX: usize = 8;
/// The most scalars.
pub const SCALARS_MAX: usize = 16;

const INPUTS_AT: usize = 88;
const OUTPUTS_AT: usize = 600;
const PORT_BYTES: usize = 64;
const SCALARS_AT: usize = 1112;
const SCREEN_AT: usize = 1240;

/// An input or output as a program sees it in one call.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// Address of its window; 0 if it is a stream, or not there in this call.
    pub address: u64,
    /// Bytes of an input, room in bytes of an output, bytes of a kernel's window.
    pub bytes: u64,
    /// First byte of a kernel's window within its section; 0 for programs.
    pub offset: u64,
    /// Shape of the records, in records: 1 to 4 dimensions.
    pub shape: Vec<u64>,
}

/// The arguments of one call.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Bit patterns.
    pub scalars: Vec<u64>,
    /// The task's number.
    pub task: u64,
    /// Number of its first record in the first input.
    pub first_record: u64,
    /// Address of the state.
    pub state: u64,
    /// Its bytes.
    pub state_bytes: u64,
    /// Address of the state to fold in; 0 but in a merge.
    pub other_state: u64,
    /// Address of the free part of the scratchpad.
    pub scratchpad: u64,
    /// Its bytes.
    pub scratchpad_bytes: u64,
    /// A kernel's screen, from 0 on.
    pub screen: u64,
    /// Number of screens of its microblock.
    pub screens: u64,
}

impl Arguments {
    /// Write the argument block.
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
    }

    /// Bytes that a program says it wrote to an output.
    ///
    /// # Panics
    /// If there can be no such output.
    pub fn used(block: &[u8], output: usize) -> u64 {
        word(block, OUTPUTS_AT, output)
    }

    /// The same field of an input.
    ///
    /// # Panics
    /// If there can be no such input.
    pub(crate) fn taken(block: &[u8], input: usize) -> u64 {
        word(block, INPUTS_AT, input)
    }
}

/// The field `used` of a port.
fn word(block: &[u8], ports: usize, port: usize) -> u64 {
    assert!(port < PORTS_MAX);
    let at = ports + port * PORT_BYTES + 16;
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

/// The window of an input.
pub fn input_window(input: usize) -> u64 {
    INPUT_ADDRESS + input as u64 * WINDOW_BYTES
}

/// The window of an output.
pub fn output_window(output: usize) -> u64 {
    OUTPUT_ADDRESS + output as u64 * WINDOW_BYTES
}
