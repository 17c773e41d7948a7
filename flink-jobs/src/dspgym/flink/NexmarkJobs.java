package dspgym.flink;

import static dspgym.flink.NexmarkGenerator.EVENT;

import dspgym.flink.NexmarkGenerator.Kind;
import java.time.Duration;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** Nexmark's queries 1, 2, 3, 5, 8 and 11 as DataStream jobs of few vertices. */
final class NexmarkJobs {

    private static final double AUCTION_SHARE = 0.75; // three auctions for a person
    private static final double PERSON_SHARE = 0.25;

    private static final long CENTS_OF_EURO_PER_1000_DOLLARS = 908;
    private static final long Q2_EVERY = 123;

    /** Persons live in one of six states of the US; q3 asks for the first three of them. */
    private static final long Q3_STATES = 3;

    private NexmarkJobs() {}

    /** Currency conversion: stateless, one result per bid. */
    static void q1(JobGraph graph, Arguments arguments) {
        Pacer pacer = graph.pacer("map");
        graph.sink(graph.vertex(
                "map",
                bids(graph, arguments).rebalance().map(bid -> {
                    pacer.pay();
                    bid.value = bid.value * CENTS_OF_EURO_PER_1000_DOLLARS / 1000;
                    return bid;
                }).returns(EVENT)));
    }

    /** Selection: bids on every 123rd auction. */
    static void q2(JobGraph graph, Arguments arguments) {
        graph.sink(graph.vertex(
                "filter",
                bids(graph, arguments)
                        .rebalance()
                        .filter(new PacedFilter(graph.pacer("filter"), bid -> bid.id % Q2_EVERY == 0))));
    }

    /** Who sells in a category and lives in some states: a filter on each side, then a join. */
    static void q3(JobGraph graph, Arguments arguments) {
        DataStream<Event> auctions = graph.vertex(
                "auction_filter",
                auctions(graph, arguments)
                        .rebalance()
                        .filter(new PacedFilter(
                                graph.pacer("auction_filter"),
                                auction -> auction.value == NexmarkGenerator.FIRST_CATEGORY)));
        DataStream<Event> persons = graph.vertex(
                "person_filter",
                persons(graph, arguments)
                        .rebalance()
                        .filter(new PacedFilter(
                                graph.pacer("person_filter"), person -> person.value < Q3_STATES)));
        graph.sink(graph.vertex(
                "join",
                auctions.keyBy(auction -> auction.party, Types.LONG)
                        .connect(persons.keyBy(person -> person.id, Types.LONG))
                        .process(new IncrementalJoin(graph.pacer("join")), EVENT)));
    }

    /** Bids per auction in a sliding window. */
    static void q5(JobGraph graph, Arguments arguments) {
        int windowS = arguments.count("window-s", 10);
        int slideS = arguments.count("slide-s", 2);
        if (windowS % slideS != 0) {
            throw new IllegalArgumentException(
                    "--window-s " + windowS + " must be a multiple of --slide-s " + slideS);
        }
        // A record is added once to each of the windows it falls into.
        Pacer pacer = graph.pacer("window").spreadOver(windowS / slideS);
        graph.sink(graph.vertex(
                "window",
                bids(graph, arguments)
                        .keyBy(bid -> bid.id, Types.LONG)
                        .window(SlidingEventTimeWindows.of(
                                Duration.ofSeconds(windowS), Duration.ofSeconds(slideS)))
                        .aggregate(new CountEvents(pacer), new CountResult<>(), Types.LONG, EVENT)));
    }

    /** Persons who registered and opened auctions in the same tumbling window. */
    static void q8(JobGraph graph, Arguments arguments) {
        Duration window = Duration.ofSeconds(arguments.count("window-s", 10));
        graph.sink(graph.vertex(
                "join",
                auctions(graph, arguments)
                        .keyBy(auction -> auction.party, Types.LONG)
                        .connect(persons(graph, arguments).keyBy(person -> person.id, Types.LONG))
                        .process(new WindowJoin(window, graph.pacer("join")), EVENT)));
    }

    /** Bids per bidder and session. */
    static void q11(JobGraph graph, Arguments arguments) {
        Duration gap = Duration.ofSeconds(arguments.count("gap-s", 10));
        graph.sink(graph.vertex(
                "session",
                bids(graph, arguments)
                        .keyBy(bid -> bid.party, Types.LONG)
                        .window(EventTimeSessionWindows.withGap(gap))
                        .aggregate(
                                new CountEvents(graph.pacer("session")),
                                new CountResult<>(),
                                Types.LONG,
                                EVENT)));
    }

    private static SingleOutputStreamOperator<Event> bids(JobGraph graph, Arguments arguments) {
        return graph.source("bids", 1, new NexmarkGenerator(Kind.BIDS, arguments));
    }

    private static SingleOutputStreamOperator<Event> auctions(JobGraph graph, Arguments arguments) {
        return graph.source("auctions", AUCTION_SHARE, new NexmarkGenerator(Kind.AUCTIONS, arguments));
    }

    private static SingleOutputStreamOperator<Event> persons(JobGraph graph, Arguments arguments) {
        return graph.source("persons", PERSON_SHARE, new NexmarkGenerator(Kind.PERSONS, arguments));
    }
}
