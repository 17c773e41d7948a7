package dspgym.flink;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.UUID;
import org.apache.flink.metrics.MetricGroup;

/**
 * What one operator of one subtask really did, beside anything that Flink says of it.
 *
 * <p>It pays the operator's cost per record, and four times a second appends a row to a file of its own:
 * milliseconds since the Unix epoch, vertex, operator, subtask, attempt, records in and out, the
 * microseconds they cost and those that the thread was woken late by, with tabs between. All counts are since the attempt began.
 */
final class Truth implements Serializable {

    private static final long serialVersionUID = 1;

    private static final long EVERY_MS = 250;

    private final String folder;
    private final String operator;
    private final Pacer pacer;
    private final double costUs;
    private transient String whose;
    private transient Path file;
    private transient long noted;
    private transient long in;
    private transient long out;

    Truth(String folder, String operator, double costUs) {
        this.folder = folder;
        this.operator = operator;
        this.pacer = new Pacer(costUs);
        this.costUs = costUs;
    }

    /** Tells whose counts these are; else the vertex and the subtask of the rows are empty. */
    void of(MetricGroup metrics) {
        if (whose == null) {
            Map<String, String> names = metrics.getAllVariables();
            whose = String.join(
                    "\t",
                    names.getOrDefault("<task_id>", ""),
                    operator,
                    names.getOrDefault("<subtask_index>", ""),
                    names.getOrDefault("<task_attempt_num>", ""));
        }
    }

    /** Counts a record taken in, and pays for it. */
    void in() {
        long nowMs = System.currentTimeMillis();
        if (nowMs / EVERY_MS > noted) {
            noted = nowMs / EVERY_MS;
            note(nowMs);
        }
        in++;
        pacer.pay();
    }

    /** Counts a record given out. */
    void out() {
        out++;
    }

    private void note(long nowMs) {
        if (file == null) {
            file = Path.of(folder, UUID.randomUUID() + ".tsv");
            whose = whose == null ? String.join("\t", "", operator, "", "") : whose;
        }
        String row = String.join(
                "\t", Long.toString(nowMs), whose, Long.toString(in), Long.toString(out),
                Long.toString(Math.round(in * costUs)), Long.toString(pacer.lateNs() / 1000)) + "\n";
        try {
            Files.writeString(
                    file, row, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
