package org.apache.flink.autoscaler.topology;

/** Declaration: how records travel between two vertices. */
public enum ShipStrategy {
    HASH,
    REBALANCE,
    RESCALE,
    FORWARD,
    CUSTOM,
    BROADCAST,
    GLOBAL,
    SHUFFLE,
    UNKNOWN
}
