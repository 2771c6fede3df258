package orders;

import com.azure.json.JsonProviders;
import com.azure.json.JsonReader;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A Tablestone server for tests, and its control API. Knows nothing of orders. */
final class Tablestone implements AutoCloseable {
    private static final String OPTIONS = "serve --engine memory --port 0 --control 0 --print json";

    private final HttpClient client = HttpClient.newHttpClient();
    private final Process process;
    private final String control;

    Tablestone() throws IOException {
        String command = System.getenv().getOrDefault("TABLESTONE", "tablestone");
        List<String> words = new ArrayList<>(List.of(command.split(" ")));
        words.addAll(List.of(OPTIONS.split(" ")));
        process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        BufferedReader output = new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        control = (String) parse(output.readLine()).get("control");
    }

    /** The answer of the control API; empty if it has none. A refusal is an error with its sentence. */
    Map<String, Object> ask(String method, String path, String members) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
            .method(method, members == null ? BodyPublishers.noBody() : BodyPublishers.ofString(members)).build();
        HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
        if (answer.statusCode() >= 400) {
            throw new IllegalArgumentException(method + " " + path + ": " + answer.body());
        }
        return answer.body().isEmpty() ? Map.of() : parse(answer.body());
    }

    @Override
    public void close() throws InterruptedException {
        process.destroy();
        process.waitFor();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> parse(String json) throws IOException {
        try (JsonReader reader = JsonProviders.createReader(json)) {
            return (Map<String, Object>) reader.readUntyped();
        }
    }
}
