"""Connections of `urllib3`, under `requests` and Kubernetes' client, that end at the deadline."""

from __future__ import annotations

import socket
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import pool_classes_by_scheme

from dsp_gym.backends.upstream.deadlines import shut_when_late


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


def end_at_deadline(manager: PoolManager) -> None:
    """Have the connections of a manager end when their question is late.

    Those through a SOCKS proxy are made by classes of their own; there the caller leaves in time,
    and the thread ends by the time limits of its socket.
    """
    if manager.pool_classes_by_scheme == pool_classes_by_scheme:
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SafePool}


class Adapter(HTTPAdapter):
    """What `requests` opens connections with; it tries nothing twice."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the manager of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        end_at_deadline(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Make the manager of connections through a proxy.

        Returns:
            The manager.
        """
        manager = super().proxy_manager_for(*args, **kwargs)
        end_at_deadline(manager)
        return manager
