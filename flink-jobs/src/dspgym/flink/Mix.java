package dspgym.flink;

/** Counter-based randomness: any draw follows from the seed and the numbers it is keyed by. */
final class Mix {

    private Mix() {}

    /** SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) at a position of the stream of a seed. */
    static long bits(long seed, long position) {
        long z = finish(seed * 0x9E3779B97F4A7C15L) + (position + 1) * 0x9E3779B97F4A7C15L;
        return finish(z);
    }

    /** A number from 0 to below {@code bound}; the bias is negligible for bounds far below 2^63. */
    static long below(long bound, long seed, long position) {
        return (bits(seed, position) >>> 1) % bound;
    }

    private static long finish(long z) {
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }
}
