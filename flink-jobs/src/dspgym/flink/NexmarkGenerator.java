package dspgym.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;

/**
 * One kind of event of Nexmark's stream, after the generator of Apache Beam and nexmark-flink.
 *
 * <p>Of 50 events one is a person, three are auctions, 46 are bids; ids follow from the number of
 * the event in the whole stream, so the three sources fit together. Auctions refer to the latest
 * persons, bids to the latest persons and auctions; one of a hundred of those is hot at a time.
 */
final class NexmarkGenerator implements RecordGenerator<Event> {

    private static final long serialVersionUID = 1;

    static final TypeInformation<Event> EVENT = TypeInformation.of(Event.class);

    /** Categories are numbered from here; q3 asks for the first. */
    static final long FIRST_CATEGORY = 10;

    private static final int CATEGORIES = 5;
    private static final int STATES = 6;
    private static final int EPOCH_EVENTS = 50;
    private static final int EPOCH_AUCTIONS = 3;
    private static final int EPOCH_BIDS = 46;
    private static final long FIRST_ID = 1000; // of persons and of auctions
    private static final int LEAD = 10; // ids are sometimes asked for before they appear
    private static final int AUCTIONS_IN_FLIGHT = 100;
    private static final int HOT_EVERY = 100;
    private static final int PERSON_BYTES = 200;
    private static final int AUCTION_BYTES = 500;
    private static final int BID_BYTES = 100;
    private static final int DRAWS = 4; // random numbers reserved for one event

    /** Which events a source emits. */
    enum Kind {
        PERSONS,
        AUCTIONS,
        BIDS
    }

    private final Kind kind;
    private final long seed;
    private final long activePeople;
    private final int hotAuctions;
    private final int hotSellers;
    private final int hotBidders;
    private final Event event = new Event();

    NexmarkGenerator(Kind kind, Arguments arguments) {
        this.kind = kind;
        this.seed = arguments.number("seed", 0);
        this.activePeople = arguments.count("keys", 1000);
        this.hotAuctions = arguments.count("hot-auctions", 2);
        this.hotSellers = arguments.count("hot-sellers", 4);
        this.hotBidders = arguments.count("hot-bidders", 4);
    }

    @Override
    public TypeInformation<Event> type() {
        return EVENT;
    }

    @Override
    public Event record(long number) {
        return switch (kind) {
            case PERSONS -> person(number);
            case AUCTIONS -> auction(number);
            case BIDS -> bid(number);
        };
    }

    private Event person(long person) {
        long draw = person * EPOCH_EVENTS * DRAWS;
        return event.set(FIRST_ID + person, 0, Mix.below(STATES, seed, draw), PERSON_BYTES);
    }

    private Event auction(long auction) {
        long epoch = auction / EPOCH_AUCTIONS;
        long draw = (epoch * EPOCH_EVENTS + 1 + auction % EPOCH_AUCTIONS) * DRAWS;
        long seller = Mix.below(hotSellers, seed, draw) > 0
                ? epoch / HOT_EVERY * HOT_EVERY
                : anyPerson(epoch, draw + 1);
        long category = FIRST_CATEGORY + Mix.below(CATEGORIES, seed, draw + 2);
        return event.set(FIRST_ID + auction, FIRST_ID + seller, category, AUCTION_BYTES);
    }

    private Event bid(long bid) {
        long epoch = bid / EPOCH_BIDS;
        long draw = (epoch * EPOCH_EVENTS + 1 + EPOCH_AUCTIONS + bid % EPOCH_BIDS) * DRAWS;
        long lastAuction = epoch * EPOCH_AUCTIONS + EPOCH_AUCTIONS - 1;
        long auction = Mix.below(hotAuctions, seed, draw) > 0
                ? lastAuction / HOT_EVERY * HOT_EVERY
                : anyAuction(lastAuction, draw + 1);
        long bidder = Mix.below(hotBidders, seed, draw + 2) > 0
                ? epoch / HOT_EVERY * HOT_EVERY + 1
                : anyPerson(epoch, draw + 3);
        // Prices are spread evenly over six orders of magnitude.
        double order = 6.0 * (Mix.bits(seed ^ 0x5DEECE66DL, draw) >>> 11) * 0x1.0p-53;
        long price = Math.round(Math.pow(10, order) * 100);
        return event.set(FIRST_ID + auction, FIRST_ID + bidder, price, BID_BYTES);
    }

    /** One of the latest persons, or one soon to come. */
    private long anyPerson(long lastPerson, long draw) {
        long persons = lastPerson + 1;
        long active = Math.min(persons, activePeople);
        return persons - active + Mix.below(active + LEAD, seed, draw);
    }

    private long anyAuction(long lastAuction, long draw) {
        long first = Math.max(lastAuction - AUCTIONS_IN_FLIGHT, 0);
        return first + Mix.below(lastAuction - first + 1 + LEAD, seed, draw);
    }
}
