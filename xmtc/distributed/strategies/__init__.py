"""The strategies behind the protocol in `xmtc.distributed.strategy`; `config` has their settings and the family."""
