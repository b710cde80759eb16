"""TLS: which files prove who we are and whom we believe, and sockets that two threads may use."""

from tidemark.tls.files import TlsContext, TlsFiles, check_peer, client_side, server_side
from tidemark.tls.sockets import TlsSocket

__all__ = ["TlsContext", "TlsFiles", "TlsSocket", "check_peer", "client_side", "server_side"]
