package dspgym.flink;

import java.io.IOException;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.types.CopyableValue;

/**
 * A person, an auction or a bid of Nexmark, or a result over them, in the columns queries read.
 *
 * <p>Nexmark's other columns are filler: bytes that are sent and stored, but not kept in objects. A
 * value type of Flink, which is written without reflection.
 */
public final class Event implements CopyableValue<Event> {

    private static final long serialVersionUID = 1;

    private static final int BYTES = 3 * Long.BYTES + Integer.BYTES;
    private static final byte[] FILLER = new byte[1024];

    /** Person: its id. Auction: its id. Bid: the auction. Result: the key. */
    public long id;

    /** Auction: the seller. Bid: the bidder. */
    public long party;

    /** Person: the state of residence. Auction: the category. Bid: the price. Result: a count. */
    public long value;

    private int fillerBytes;

    public Event() {}

    /** A result, which has no filler. */
    Event(long id, long party, long value) {
        set(id, party, value, BYTES);
    }

    Event set(long id, long party, long value, int bytes) {
        this.id = id;
        this.party = party;
        this.value = value;
        this.fillerBytes = bytes - BYTES;
        return this;
    }

    @Override
    public void write(DataOutputView out) throws IOException {
        out.writeLong(id);
        out.writeLong(party);
        out.writeLong(value);
        out.writeInt(fillerBytes);
        out.write(FILLER, 0, fillerBytes);
    }

    @Override
    public void read(DataInputView in) throws IOException {
        set(in.readLong(), in.readLong(), in.readLong(), BYTES + in.readInt());
        in.skipBytesToRead(fillerBytes);
    }

    @Override
    public int getBinaryLength() {
        return -1; // it varies
    }

    @Override
    public void copyTo(Event target) {
        target.set(id, party, value, BYTES + fillerBytes);
    }

    @Override
    public Event copy() {
        Event copy = new Event();
        copyTo(copy);
        return copy;
    }

    @Override
    public void copy(DataInputView source, DataOutputView target) throws IOException {
        target.write(source, 3 * Long.BYTES);
        int filler = source.readInt();
        target.writeInt(filler);
        target.write(source, filler);
    }
}
