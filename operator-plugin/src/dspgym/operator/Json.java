package dspgym.operator;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as this plugin needs it, so that its classes load with nothing but the autoscaler beside.
 *
 * <p>Objects are maps, arrays are lists, numbers are doubles. A number that is not finite is
 * written as null.
 */
final class Json {

    private static final int DEEPEST = 64;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** The value that a text holds; {@link IllegalArgumentException} where it is no JSON. */
    static Object parse(String text) {
        Json reader = new Json(text);
        Object found = reader.value(0);
        reader.skipBlanks();
        if (reader.at < text.length()) {
            throw reader.wrong("more than one value");
        }
        return found;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder(4096);
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(before);
                quote(entry.getKey().toString(), out);
                out.append(':');
                write(entry.getValue(), out);
                before = ',';
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof List<?> list) {
            char before = '[';
            for (Object item : list) {
                out.append(before);
                write(item, out);
                before = ',';
            }
            out.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof Double number && !Double.isFinite(number)) {
            out.append("null");
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            quote(value.toString(), out);
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private Object value(int depth) {
        if (depth > DEEPEST) {
            throw wrong("deeper than " + DEEPEST + " levels");
        }
        skipBlanks();
        char c = peek();
        return switch (c) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        skipBlanks();
        while (peek() != '}') {
            if (!found.isEmpty()) {
                expect(',');
                skipBlanks();
            }
            String key = string();
            skipBlanks();
            expect(':');
            if (found.containsKey(key)) {
                throw wrong("the key '" + key + "' comes twice");
            }
            found.put(key, value(depth + 1));
            skipBlanks();
        }
        at++;
        return found;
    }

    private List<Object> array(int depth) {
        List<Object> found = new ArrayList<>();
        at++;
        skipBlanks();
        while (peek() != ']') {
            if (!found.isEmpty()) {
                expect(',');
            }
            found.add(value(depth + 1));
            skipBlanks();
        }
        at++;
        return found;
    }

    private String string() {
        expect('"');
        StringBuilder found = new StringBuilder();
        for (char c = next(); c != '"'; c = next()) {
            if (c < ' ') {
                throw wrong("a control character");
            }
            found.append(c == '\\' ? escaped() : c);
        }
        return found.toString();
    }

    private char escaped() {
        char c = next();
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> (char) (hex() << 12 | hex() << 8 | hex() << 4 | hex());
            default -> throw wrong("an unknown escape");
        };
    }

    private int hex() {
        int digit = Character.digit(next(), 16);
        if (digit < 0) {
            throw wrong("no hexadecimal digit");
        }
        return digit;
    }

    private Object word(String word, Object meaning) {
        if (!text.startsWith(word, at)) {
            throw wrong("no value");
        }
        at += word.length();
        return meaning;
    }

    private Double number() {
        int start = at;
        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(start, at);
        if (!digits.matches("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?")) {
            throw wrong("no value");
        }
        return Double.valueOf(digits);
    }

    private void skipBlanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at >= text.length()) {
            throw wrong("the text ends too early");
        }
        return text.charAt(at);
    }

    private char next() {
        char found = peek();
        at++;
        return found;
    }

    private void expect(char wanted) {
        if (next() != wanted) {
            at--;
            throw wrong("expected " + wanted);
        }
    }

    private IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException("no JSON at character " + at + ": " + what);
    }
}
