"""Block namespaces, made and deleted in the same words on a controller of this process and behind a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod

from nandarray.nvme.commands import Completion

__all__ = ["BlockNamespaces"]


class BlockNamespaces(ABC):
    """The base of :class:`Controller` and :class:`RemoteStore`, which make and delete block namespaces."""

    def create_namespace(
        self,
        nsid: int,
        nsze: int,
        lba_bytes: int = 512,
        *,
        compression: str | None = None,
        encryption_key: bytes | None = None,
    ) -> Completion:
        """Create a block namespace, which reads as zeroes; hosts of a drive are notified.

        Parameters
        ----------
        nsid : int
            Its identifier.
        nsze : int
            Its size in logical blocks.
        lba_bytes : int
            Bytes of a logical block: a power of two from 512 to 65536.
        compression : str, optional
            Compression, as for arrays; of a drive's namespaces, only by its server.
        encryption_key : bytes, optional
            32 bytes; of a drive's namespaces, only by its server.

        Returns
        -------
        Completion
            Completion of the command.

        Raises
        ------
        DoorError
            A drive is to compress or encrypt it.
        """
        return self._create_namespace(nsid, nsze, lba_bytes, compression, encryption_key)

    def delete_namespace(self, nsid: int) -> Completion:
        """Delete a block namespace and its data.

        Parameters
        ----------
        nsid : int
            Its identifier.

        Returns
        -------
        Completion
            Completion of the command.
        """
        return self._delete_namespace(nsid)

    @abstractmethod
    def _create_namespace(
        self, nsid: int, nsze: int, lba_bytes: int, compression: str | None, encryption_key: bytes | None
    ) -> Completion:
        """Check the numbers and submit the command, or refuse an option."""

    @abstractmethod
    def _delete_namespace(self, nsid: int) -> Completion:
        """Check the identifier and submit the command."""
