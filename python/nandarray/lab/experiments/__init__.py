"""The bundled experiments, a module each; ``nandarray lab list`` finds them here."""
