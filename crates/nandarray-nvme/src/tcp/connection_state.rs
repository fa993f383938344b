//! The states of one connection of a server, and the reasons for which it ends.

use std::sync::Arc;

use super::pdu::FatalError;
use crate::association::Association;

/// State of a connection.
#[derive(Debug)]
pub(super) enum ConnectionState {
    /// New: only ICReq (the host's handshake) is accepted.
    Initialising,
    /// The handshake is done: only a connect command is accepted.
    Unconnected,
    /// The connection is the admin queue of an association.
    Admin(Arc<Association>),
    /// The connection is to be an I/O queue, whose host has not proved its identity: its number is not taken.
    Proving(Arc<Association>, u16),
    /// The connection is an I/O queue of an association, with this number.
    Io(Arc<Association>, u16),
}

impl ConnectionState {
    /// Returns the association whose queue the connection is, or is to be.
    pub(super) fn association(&self) -> Option<&Arc<Association>> {
        match self {
            Self::Initialising | Self::Unconnected => None,
            Self::Admin(association) | Self::Proving(association, _) | Self::Io(association, _) => Some(association),
        }
    }
}

/// The reason for which a connection ends.
#[derive(Debug)]
pub(super) enum ConnectionEnd {
    /// The host or the server closed the connection, or the time for connecting has expired.
    Closed,
    /// The host violated the protocol: the error, and the header of the PDU that caused it.
    Fatal(FatalError, Vec<u8>),
}

impl From<std::io::Error> for ConnectionEnd {
    fn from(_: std::io::Error) -> Self {
        Self::Closed
    }
}
