package dspgym.operator;

import java.io.IOException;
import java.net.ConnectException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Asks dsp-gym; a request takes no longer than its time limit, whatever the server does. */
final class Client {

    private static final int LONGEST_TOKEN = 4096;

    private static final HttpClient HTTP =
            HttpClient.newBuilder()
                    .version(HttpClient.Version.HTTP_1_1)
                    .followRedirects(HttpClient.Redirect.NEVER)
                    .connectTimeout(Duration.ofSeconds(1))
                    .executor(
                            Executors.newCachedThreadPool(
                                    work -> {
                                        Thread made = new Thread(work, "dsp-gym client");
                                        made.setDaemon(true);
                                        return made;
                                    }))
                    .build();

    private Client() {}

    /** Loads what a first request needs, so that it is not late. */
    static void prepare() {
        HTTP.version();
    }

    /**
     * The body of the answer to a snapshot.
     *
     * @param deadlineNs as {@link System#nanoTime} tells it
     */
    static String ask(Settings settings, Snapshot snapshot, boolean enacts, long deadlineNs) {
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted(); // an answer that came at once would hide the interruption
        }
        HttpRequest request =
                HttpRequest.newBuilder(settings.address(enacts))
                        .timeout(settings.timeout())
                        .header("Authorization", "Bearer " + token(settings.tokenFile()))
                        .header("Content-Type", "application/json")
                        .POST(HttpRequest.BodyPublishers.ofString(Json.write(snapshot.document())))
                        .build();
        CompletableFuture<HttpResponse<String>> asked =
                HTTP.sendAsync(request, answer -> new LimitedBody());
        try {
            long leftNs = Math.max(0, deadlineNs - System.nanoTime());
            HttpResponse<String> answer = asked.get(leftNs, TimeUnit.NANOSECONDS);
            if (answer.statusCode() != 200) {
                throw new NoAnswerException(
                        "dsp-gym answered " + answer.statusCode() + ": " + brief(answer.body()));
            }
            return answer.body();
        } catch (TimeoutException error) {
            throw new NoAnswerException(
                    "dsp-gym did not answer within " + settings.timeout().toMillis() + " ms");
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw interrupted();
        } catch (ExecutionException error) {
            throw new NoAnswerException(said(error.getCause(), settings));
        } finally {
            asked.cancel(true);
        }
    }

    private static NoAnswerException interrupted() {
        return new NoAnswerException("the cycle was interrupted");
    }

    private static String said(Throwable error, Settings settings) {
        String what = error instanceof ConnectException ? "cannot be reached" : "did not answer";
        return "dsp-gym " + what + " at " + settings.url().getAuthority() + ": " + error;
    }

    private static String token(Path file) {
        try {
            if (Files.size(file) > LONGEST_TOKEN) {
                throw new NoAnswerException("token-file " + file + " holds more than one token");
            }
            String[] words = Files.readString(file, StandardCharsets.UTF_8).strip().split("\\s+");
            String token = words[words.length - 1];
            if (words.length > 2 || !token.matches("[!-~]+")) {
                throw new NoAnswerException("token-file " + file + " does not hold one token");
            }
            return token;
        } catch (IOException error) {
            throw new NoAnswerException("token-file " + file + " cannot be read: " + error);
        }
    }

    private static String brief(String text) {
        return text.length() <= 200 ? text : text.substring(0, 200) + "...";
    }
}
