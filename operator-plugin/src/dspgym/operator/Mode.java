package dspgym.operator;

/** How far dsp-gym may go. */
enum Mode {
    /** Its answers are shown as gauges and nothing changes. */
    OBSERVE,
    /** Its forecast may raise the target rates of sources. */
    FORECAST,
    /** The autoscaler goes to its parallelism. */
    POLICY
}
