"""Connections of `urllib3`, under `requests` and Kubernetes' client, that end at the deadline."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import pool_classes_by_scheme

from dsp_gym.backends.upstream.deadlines import shut_when_late

if TYPE_CHECKING:
    from urllib3._base_connection import BaseHTTPConnection


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        shut_when_late(made)  # before anything is read, be it of TLS or of a proxy
        return made

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:  # of an earlier question
            shut_when_late(self.sock)
        super().request(*args, **kwargs)


class _SafeConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SafePool(HTTPSConnectionPool):
    ConnectionCls = _SafeConnection


class _Fresh(HTTPConnectionPool):
    def _put_conn(self, conn: BaseHTTPConnection | None) -> None:
        if conn is not None:
            conn.close()
        super()._put_conn(conn)


class _FreshPool(_Fresh, _Pool):
    pass


class _FreshSafePool(_Fresh, _SafePool):
    pass


def end_at_deadline(manager: PoolManager, *, keeps: bool = True) -> None:
    """Have the connections of a manager end when their question is late.

    Those through a SOCKS proxy are made by classes of their own; there the caller leaves in time,
    and the thread ends by the time limits of its socket.

    Args:
        manager: of the connections.
        keeps: whether one serves several questions.
    """
    if manager.pool_classes_by_scheme == pool_classes_by_scheme:
        plain, safe = (_Pool, _SafePool) if keeps else (_FreshPool, _FreshSafePool)
        manager.pool_classes_by_scheme = {"http": plain, "https": safe}


class Adapter(HTTPAdapter):
    """What `requests` opens connections with; it tries nothing twice.

    Args:
        keeps: whether a connection serves several questions.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the manager of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        end_at_deadline(self.poolmanager, keeps=self._keeps)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the manager of connections through a proxy.

        Returns:
            The manager.
        """
        manager = super().proxy_manager_for(*args, **kwargs)
        end_at_deadline(manager, keeps=self._keeps)
        return manager
