//! Description of an array that a server offers to its clients.

/// An array that a server offers, as its region describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace identifier of the array.
    pub nsid: u32,
    /// Name of the array.
    pub name: String,
    /// Element type, as the store names it.
    pub dtype: String,
    /// Shape of the array, in elements.
    pub shape: Vec<u64>,
    /// Size of an element, in bytes.
    pub item_bytes: u32,
    /// Size of all elements, in bytes.
    pub bytes: u64,
    /// Whether clients may write to the array.
    pub writable: bool,
}
