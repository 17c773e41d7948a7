package dspgym.flink;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.flink.util.ParameterTool;

/** The command line, {@code --key value} pairs, with errors that name the key. */
final class Arguments {

    private final ParameterTool values;

    Arguments(String[] args) {
        values = ParameterTool.fromArgs(args);
    }

    ParameterTool all() {
        return values;
    }

    String text(String key) {
        String value = values.get(key);
        if (value == null) {
            throw new IllegalArgumentException("--" + key + " is missing");
        }
        return value;
    }

    String text(String key, String otherwise) {
        return values.get(key, otherwise);
    }

    boolean has(String key) {
        return values.has(key);
    }

    int count(String key, int otherwise) {
        int value = parsed(key, values.get(key, Integer.toString(otherwise)), Integer::valueOf);
        if (value < 1) {
            throw new IllegalArgumentException("--" + key + " " + value + ": expected 1 or more");
        }
        return value;
    }

    long number(String key, long otherwise) {
        return parsed(key, values.get(key, Long.toString(otherwise)), Long::valueOf);
    }

    double real(String key, double otherwise) {
        double value = parsed(key, values.get(key, Double.toString(otherwise)), Double::valueOf);
        if (!(value >= 0)) {
            throw new IllegalArgumentException("--" + key + " " + value + ": expected 0 or more");
        }
        return value;
    }

    boolean flag(String key) {
        String value = values.get(key, "false").toLowerCase(java.util.Locale.ROOT);
        if (!value.equals("true") && !value.equals("false")) {
            throw new IllegalArgumentException("--" + key + " " + value + ": expected true or false");
        }
        return value.equals("true");
    }

    /** A list such as {@code bids=1,session=4}; empty where the key is absent. */
    <T> Map<String, T> byVertex(String key, Function<String, T> parse) {
        Map<String, T> numbers = new LinkedHashMap<>();
        for (String part : values.get(key, "").split(",")) {
            if (part.isBlank()) {
                continue;
            }
            String[] sides = part.trim().split("=", 2);
            if (sides.length < 2) {
                throw new IllegalArgumentException(
                        "--" + key + " " + part + ": expected VERTEX=NUMBER,...");
            }
            numbers.put(sides[0].trim(), parsed(key, sides[1].trim(), parse));
        }
        return numbers;
    }

    /** The offered load, from {@code --rate} or {@code --load-file}. */
    Load load() throws IOException {
        if (has("rate") == has("load-file")) {
            throw new IllegalArgumentException("give either --rate or --load-file");
        }
        if (has("rate")) {
            return new Load(new double[] {0}, new double[] {real("rate", 0)});
        }
        Path file = Path.of(text("load-file"));
        List<String> lines = Files.readAllLines(file).stream().filter(line -> !line.isBlank()).toList();
        double[] startS = new double[lines.size()];
        double[] ratePerS = new double[lines.size()];
        for (int i = 0; i < startS.length; i++) {
            try {
                String[] columns = lines.get(i).split(",");
                startS[i] = Double.parseDouble(columns[0].trim());
                ratePerS[i] = Double.parseDouble(columns[1].trim());
            } catch (NumberFormatException | ArrayIndexOutOfBoundsException e) {
                throw new IllegalArgumentException(
                        file + ": line '" + lines.get(i) + "': expected SECONDS,RECORDS_PER_SECOND");
            }
        }
        return new Load(startS, ratePerS);
    }

    private static <T> T parsed(String key, String value, Function<String, T> parse) {
        try {
            return parse.apply(value);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException("--" + key + " " + value + ": not a number");
        }
    }
}
