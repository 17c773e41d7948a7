package dspgym.flink;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * DS2's word count: sentences, split into words, counted per word.
 *
 * <p>The sink runs in the tasks of {@code count}, as a counting last operator does in DS2.
 */
final class WordCountJob {

    private WordCountJob() {}

    static void build(JobGraph graph, Arguments arguments) {
        Sentences sentences = new Sentences(
                arguments.number("seed", 0), arguments.count("words", 10), arguments.count("keys", 10_000));
        DataStream<String> words = graph.vertex(
                "flatmap",
                graph.source("source", 1, sentences)
                        .rebalance()
                        .flatMap(new Split(graph.pacer("flatmap")))
                        .returns(Types.STRING));
        DataStream<Tuple2<String, Long>> counts = graph.headOfChain(
                "count",
                words.keyBy(word -> word, Types.STRING)
                        .process(new Count(graph.pacer("count")), Types.TUPLE(Types.STRING, Types.LONG)));
        graph.chainedSink("count", counts);
    }

    /** Sentences of so many words, drawn uniformly from a vocabulary. */
    private static final class Sentences implements RecordGenerator<String> {

        private static final long serialVersionUID = 1;

        private final long seed;
        private final int words;
        private final int vocabulary;

        Sentences(long seed, int words, int vocabulary) {
            this.seed = seed;
            this.words = words;
            this.vocabulary = vocabulary;
        }

        @Override
        public String record(long number) {
            StringBuilder sentence = new StringBuilder(words * 7);
            for (int i = 0; i < words; i++) {
                sentence.append('w').append(Mix.below(vocabulary, seed, number * words + i)).append(' ');
            }
            return sentence.toString();
        }

        @Override
        public TypeInformation<String> type() {
            return Types.STRING;
        }
    }

    private static final class Split implements FlatMapFunction<String, String> {

        private static final long serialVersionUID = 1;

        private final Pacer pacer;

        Split(Pacer pacer) {
            this.pacer = pacer;
        }

        @Override
        public void flatMap(String sentence, Collector<String> out) {
            int start = 0;
            for (int end = sentence.indexOf(' '); end >= 0; end = sentence.indexOf(' ', start)) {
                out.collect(sentence.substring(start, end));
                start = end + 1;
            }
            pacer.pay();
        }
    }

    private static final class Count extends KeyedProcessFunction<String, String, Tuple2<String, Long>> {

        private static final long serialVersionUID = 1;

        private final Pacer pacer;
        private transient ValueState<Long> counts;

        Count(Pacer pacer) {
            this.pacer = pacer;
        }

        @Override
        public void open(OpenContext context) {
            counts = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String word, Context context, Collector<Tuple2<String, Long>> out)
                throws Exception {
            Long before = counts.value();
            long now = before == null ? 1 : before + 1;
            counts.update(now);
            pacer.pay();
            out.collect(Tuple2.of(word, now));
        }
    }
}
