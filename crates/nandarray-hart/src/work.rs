//! The work of a vector instruction as a meter learns it: elements, bits of the datapath, memory. `vector` and `varve`
//! compute it before they execute an instruction; nothing here knows time.

/// The kind of work that a vector instruction does, as far as its time differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorWorkKind {
    /// Sets the vector type, or reads or writes single elements and counts.
    #[default]
    Scalar,
    /// Computes on elements, all of which pass through the datapath.
    Compute,
    /// Divides elements or takes their square roots.
    Divide,
    /// Loads or stores consecutive bytes.
    Consecutive,
    /// Loads or stores elements at addresses of their own.
    Scattered,
    /// Describes a packed stream.
    Describe,
    /// Reads values of a packed stream.
    Unpack,
    /// Writes values to a packed stream.
    Pack,
}

/// Bytes of memory that a vector instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorBytes {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes; 0 for a stream that is only described.
    pub bytes: u64,
    /// Whether the bytes are stored.
    pub store: bool,
    /// Number of the packed stream to which the bytes belong; from 32 on, that of its array of widths. `None` for other
    /// memory.
    pub stream: Option<u8>,
}

/// The work of one vector instruction, as a meter learns it before it is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorWork {
    /// The kind of work.
    pub kind: VectorWorkKind,
    /// Number of elements.
    pub elements: u64,
    /// Bits of the datapath that the elements occupy, with padding and alignment.
    pub datapath_bits: u64,
    /// Bits that the elements' values need in the operation (Table 8.3 of the dissertation).
    pub value_bits: u64,
    /// Number of packed bits of a stream that are read or written.
    pub packed_bits: u64,
    /// Memory that is accessed.
    pub memory: Vec<VectorBytes>,
}

impl VectorWork {
    /// Adds memory that the instruction accesses.
    pub(crate) fn touch(&mut self, address: u64, bytes: u64, store: bool, stream: Option<u8>) {
        self.memory.push(VectorBytes { address, bytes, store, stream });
    }
}
