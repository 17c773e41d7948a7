package dspgym.flink;

import java.io.Serializable;
import java.util.Arrays;

/**
 * The offered load: a rate that is constant by pieces, its integral, and the integral's inverse.
 *
 * <p>Time is in seconds since the load's epoch; the last rate holds for ever.
 */
final class Load implements Serializable {

    private static final long serialVersionUID = 1;

    private final double[] startS;
    private final double[] ratePerS;
    private final double[] dueAtStart; // records due when a piece begins

    Load(double[] startS, double[] ratePerS) {
        if (startS.length == 0 || startS[0] != 0) {
            throw new IllegalArgumentException("a load begins at second 0");
        }
        this.startS = startS;
        this.ratePerS = ratePerS;
        this.dueAtStart = new double[startS.length];
        for (int i = 1; i < startS.length; i++) {
            if (!(startS[i] > startS[i - 1])) {
                throw new IllegalArgumentException(
                        "the seconds of a load must rise, but " + startS[i] + " follows " + startS[i - 1]);
            }
            dueAtStart[i] = dueAtStart[i - 1] + ratePerS[i - 1] * (startS[i] - startS[i - 1]);
        }
        for (double rate : ratePerS) {
            if (!(rate >= 0) || Double.isInfinite(rate)) {
                throw new IllegalArgumentException("a rate of " + rate + " records/s is none");
            }
        }
    }

    Load scaled(double share) {
        return new Load(startS, Arrays.stream(ratePerS).map(rate -> rate * share).toArray());
    }

    /** Whole records due by a time; none before the epoch. */
    long due(double timeS) {
        if (timeS <= 0) {
            return 0;
        }
        int piece = lastNotAbove(startS, timeS);
        return (long) (dueAtStart[piece] + ratePerS[piece] * (timeS - startS[piece]));
    }

    /** When the record after so many others becomes due, in seconds; infinite if it never does. */
    double dueAtS(long recordsBefore) {
        double records = recordsBefore + 1.0;
        int piece = lastBelow(dueAtStart, records);
        return ratePerS[piece] == 0
                ? Double.POSITIVE_INFINITY
                : startS[piece] + (records - dueAtStart[piece]) / ratePerS[piece];
    }

    private static int lastNotAbove(double[] rising, double value) {
        int found = Arrays.binarySearch(rising, value);
        return found >= 0 ? found : -found - 2;
    }

    private static int lastBelow(double[] rising, double value) {
        int low = 0;
        int high = rising.length - 1;
        while (low < high) {
            int middle = (low + high + 1) >>> 1;
            if (rising[middle] < value) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low;
    }
}
