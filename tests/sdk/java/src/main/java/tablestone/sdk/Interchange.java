package tablestone.sdk;

import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenCredential;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.rest.PagedIterable;
import com.azure.core.util.Context;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableEntityUpdateMode;
import com.azure.data.tables.sas.TableAccountSasPermission;
import com.azure.data.tables.sas.TableAccountSasResourceType;
import com.azure.data.tables.sas.TableAccountSasService;
import com.azure.data.tables.sas.TableAccountSasSignatureValues;
import com.azure.data.tables.sas.TableSasPermission;
import com.azure.data.tables.sas.TableSasSignatureValues;
import com.azure.json.JsonProviders;
import com.azure.json.JsonReader;
import com.azure.json.JsonWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import reactor.core.publisher.Mono;

/**
 * This SDK's side of tests/sdk/interchange/README.md, contract 1: writes the entities of a description with the types of
 * azure-data-tables and reads a table back into the description's terms. It does not know what a reader expects.
 */
public final class Interchange {
    private static final int CONTRACT = 1;
    private static final DateTimeFormatter INSTANT = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSSS'Z'");
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Interchange() {
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length == 3 && arguments[0].equals("write")) {
            write(table(arguments[1]), Path.of(arguments[2]));
        } else if (arguments.length == 2 && arguments[0].equals("read")) {
            read(table(arguments[1]));
        } else if (arguments.length == 2 && arguments[0].equals("sign")) {
            sign(arguments[1]);
        } else if (arguments.length > 1 && arguments[0].equals("attempt")) {
            for (String asked : List.of(arguments).subList(1, arguments.length)) {
                String[] parts = asked.split(":");
                OUT.println("{\"attempt\": \"" + asked + "\", \"status\": " + attempt(parts[0], table(parts[1])) + "}");
            }
        } else {
            throw new IllegalArgumentException(
                "usage: write TABLE ENTITIES_JSON | read TABLE | sign TABLE | attempt OPERATION:TABLE ...");
        }
    }

    private static TableServiceClient service() {
        String token = System.getenv("TABLESTONE_TEST_TOKEN");
        if (token != null) { // from a credential that asks nobody for it
            return new TableServiceClientBuilder().endpoint(System.getenv("TABLESTONE_TEST_ENDPOINT"))
                .credential((TokenCredential) request -> Mono.just(
                    new AccessToken(token, OffsetDateTime.now().plusHours(1))))
                .buildClient();
        }
        return new TableServiceClientBuilder().connectionString(System.getenv("TABLESTONE_TEST_CONNECTION_STRING"))
            .buildClient();
    }

    private static TableClient table(String name) {
        return service().getTableClient(name);
    }

    /** With the retries that the SDK has by itself: 0, the status of its error, or -1 without an answer. */
    private static int attempt(String operation, TableClient table) {
        TableEntity entity = new TableEntity("p", "r");
        try {
            switch (operation) {
                case "insert":
                    table.createEntity(entity);
                    return 0;
                case "get":
                    table.getEntity("p", "r");
                    return 0;
                case "update":
                    table.updateEntityWithResponse(table.getEntity("p", "r"), TableEntityUpdateMode.REPLACE, true, null,
                        Context.NONE);
                    return 0;
                default:
                    throw new IllegalArgumentException("unknown operation " + operation);
            }
        } catch (HttpResponseException error) {
            return error.getResponse().getStatusCode();
        } catch (RuntimeException error) {
            if (error instanceof IllegalArgumentException) {
                throw error;
            }
            return -1;
        }
    }

    private static void sign(String name) throws IOException {
        OffsetDateTime expiry = OffsetDateTime.now().plusHours(1);
        print("account", service().generateAccountSas(new TableAccountSasSignatureValues(expiry,
            TableAccountSasPermission.parse("rwdlacu"), new TableAccountSasService().setTableAccess(true),
            new TableAccountSasResourceType().setService(true).setContainer(true).setObject(true))));
        print("table", table(name).generateSas(
            new TableSasSignatureValues(expiry, TableSasPermission.parse("raud"))));
    }

    private static void print(String signature, String token) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        try (JsonWriter writer = JsonProviders.createWriter(line)) {
            writer.writeStartObject().writeStringField("signature", signature).writeStringField("token", token)
                .writeEndObject();
        }
        OUT.println(line.toString(StandardCharsets.UTF_8));
    }

    @SuppressWarnings("unchecked")
    private static void write(TableClient table, Path description) throws IOException {
        Map<String, Object> described;
        try (JsonReader reader = JsonProviders.createReader(Files.readAllBytes(description))) {
            described = (Map<String, Object>) reader.readUntyped();
        }
        if (!Integer.valueOf(CONTRACT).equals(described.get("contract"))) {
            throw new IllegalArgumentException(
                "contract " + described.get("contract") + ", but this program knows " + CONTRACT);
        }
        for (Map<String, Object> one : (List<Map<String, Object>>) described.get("entities")) {
            TableEntity entity = new TableEntity((String) one.get("partitionKey"), (String) one.get("rowKey"));
            for (Map<String, Object> property : (List<Map<String, Object>>) one.get("properties")) {
                String name = (String) property.get("name");
                Object value = valueOf((String) property.get("type"), (String) property.get("value"));
                entity.addProperty(name, value);
                if (value instanceof Double && !Double.isFinite((Double) value)) {
                    // The SDK writes it as a string, and annotates no Double.
                    entity.addProperty(name + "@odata.type", "Edm.Double");
                }
            }
            table.createEntity(entity); // this SDK refuses no key
        }
    }

    private static Object valueOf(String type, String text) {
        switch (type) {
            case "Edm.String":
                return text;
            case "Edm.Int32":
                return Integer.valueOf(text);
            case "Edm.Int64":
                return Long.valueOf(text);
            case "Edm.Double":
                return Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
            case "Edm.Boolean":
                return Boolean.valueOf(text);
            case "Edm.DateTime":
                return OffsetDateTime.parse(text);
            case "Edm.Guid":
                return UUID.fromString(text);
            case "Edm.Binary":
                return Base64.getDecoder().decode(text);
            default:
                throw new IllegalArgumentException("unknown type " + type);
        }
    }

    private static void read(TableClient table) throws IOException {
        PagedIterable<TableEntity> entities = table.listEntities();
        List<TableEntity> listed = new ArrayList<>();
        for (TableEntity entity : entities) {
            listed.add(entity);
            print("list", entity);
        }
        for (TableEntity entity : listed) {
            print("get", table.getEntity(entity.getPartitionKey(), entity.getRowKey()));
        }
    }

    private static void print(String source, TableEntity entity) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        try (JsonWriter writer = JsonProviders.createWriter(line)) {
            writer.writeStartObject().writeStringField("source", source)
                .writeStringField("partitionKey", entity.getPartitionKey())
                .writeStringField("rowKey", entity.getRowKey()).writeStartArray("properties");
            for (Map.Entry<String, Object> property : entity.getProperties().entrySet()) {
                String name = property.getKey();
                if (name.startsWith("odata.") || name.endsWith("@odata.type")
                    || List.of("PartitionKey", "RowKey", "Timestamp").contains(name)) {
                    continue;
                }
                String[] typeAndText = typeAndTextOf(property.getValue());
                writer.writeStartObject().writeStringField("name", name).writeStringField("type", typeAndText[0])
                    .writeStringField("value", typeAndText[1]).writeEndObject();
            }
            writer.writeEndArray().writeEndObject();
        }
        OUT.println(line.toString(StandardCharsets.UTF_8));
    }

    private static String[] typeAndTextOf(Object value) {
        if (value instanceof String) {
            return new String[] {"Edm.String", (String) value};
        } else if (value instanceof Integer) {
            return new String[] {"Edm.Int32", value.toString()};
        } else if (value instanceof Long) {
            return new String[] {"Edm.Int64", value.toString()};
        } else if (value instanceof Double) { // doubleToLongBits gives every NaN the contract's bits
            return new String[] {"Edm.Double", String.format("%016x", Double.doubleToLongBits((Double) value))};
        } else if (value instanceof Boolean) {
            return new String[] {"Edm.Boolean", value.toString()};
        } else if (value instanceof OffsetDateTime) {
            return new String[] {"Edm.DateTime",
                ((OffsetDateTime) value).withOffsetSameInstant(ZoneOffset.UTC).format(INSTANT)};
        } else if (value instanceof UUID) {
            return new String[] {"Edm.Guid", value.toString()};
        } else if (value instanceof byte[]) {
            return new String[] {"Edm.Binary", Base64.getEncoder().encodeToString((byte[]) value)};
        } else {
            throw new IllegalStateException("a value of " + (value == null ? "null" : value.getClass().getName()));
        }
    }
}
