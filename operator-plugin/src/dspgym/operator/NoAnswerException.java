package dspgym.operator;

/** Why the built-in decision stands in this cycle, as a sentence for the log. */
final class NoAnswerException extends RuntimeException {

    private static final long serialVersionUID = 1;

    NoAnswerException(String why) {
        super(why, null, false, false);
    }
}
