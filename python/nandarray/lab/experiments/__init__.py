"""The experiments that come along, a module each; ``nandarray lab list`` finds them here."""
