//! The TCP transport: PDUs, connections, a server, an initiator.
