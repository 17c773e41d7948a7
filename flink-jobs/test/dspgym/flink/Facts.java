package dspgym.flink;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;

/** Prints what the parts without Flink answer, a line {@code question=answer} each. */
public final class Facts {

    private Facts() {}

    public static void main(String[] args) throws IOException {
        mix();
        load();
        partition();
        latency();
    }

    private static void mix() {
        say("mix bits", Mix.bits(0, 0), Mix.bits(0, 1), Mix.bits(7, 41));
        long[] counts = new long[6];
        for (long position = 0; position < 60_000; position++) {
            counts[(int) Mix.below(6, 3, position)]++;
        }
        say("mix below", counts);
    }

    private static void load() {
        Load load = new Load(new double[] {0, 10, 20}, new double[] {100, 0, 50});
        say("load due", load.due(-1), load.due(0), load.due(9.99), load.due(10), load.due(20), load.due(30));
        say("load half", load.scaled(0.5).due(10), load.scaled(0.5).due(30));
        double[] times = new double[] {load.dueAtS(0), load.dueAtS(999), load.dueAtS(1000)};
        System.out.println("load times=" + Arrays.toString(times));
        double never = new Load(new double[] {0, 1}, new double[] {5, 0}).dueAtS(5);
        System.out.println("load never=" + never);
    }

    private static void partition() throws IOException {
        Partition third = new Partition(2, 8, 1000, 0, 0);
        say("partition first", third.next(), third.owed(2), third.owed(3), third.owed(10), third.owed(11));
        third.advance();
        third.advance();
        say("partition later", third.next(), third.nextOfEpoch(), third.owed(11), third.owed(19));
        Partition again = third.at(1000);
        say("partition same epoch", again.next(), again.nextOfEpoch(), again.owed(19));
        Partition other = third.at(2000);
        say("partition other epoch", other.next(), other.nextOfEpoch(), other.owed(19));
        Partition.Serializer one = new Partition.Serializer();
        Partition read = one.deserialize(1, one.serialize(other));
        say("partition read", read.number, read.of, read.next(), read.nextOfEpoch(), read.emitted());
        PartitionAssigner.Serializer many = new PartitionAssigner.Serializer();
        List<Partition> both = many.deserialize(1, many.serialize(List.of(third, other)));
        say("partitions read", both.size(), both.get(0).nextOfEpoch(), both.get(1).nextOfEpoch());
    }

    private static void latency() {
        say("buckets", LatencyHistogram.bucket(-3), LatencyHistogram.bucket(7), LatencyHistogram.bucket(8),
                LatencyHistogram.bucket(15), LatencyHistogram.bucket(16), LatencyHistogram.bucket(17),
                LatencyHistogram.bucket(18), LatencyHistogram.bucket(1000), LatencyHistogram.bucket(Long.MAX_VALUE));
        long apart = 0;
        for (long ms = 0; ms < 1_000_000; ms++) {
            double middle = LatencyHistogram.middle(LatencyHistogram.bucket(ms));
            apart = Math.max(apart, Math.round(1e6 * Math.abs(middle - ms) / Math.max(ms, 1)));
        }
        say("bucket error ppm", apart);
        LatencyHistogram histogram = new LatencyHistogram(10);
        for (long ms = 1; ms <= 100; ms++) {
            histogram.update(ms);
        }
        var seen = histogram.getStatistics();
        say("latency", histogram.getCount(), seen.size(), seen.getMin(), seen.getMax());
        System.out.println("latency median=" + seen.getQuantile(0.5));
    }

    private static void say(String question, long... answers) {
        System.out.println(question + "=" + Arrays.toString(answers));
    }
}
