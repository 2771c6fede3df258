package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.core.credential.AzureSasCredential;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.RetryOptions;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableAccessPolicy;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableSignedIdentifier;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import com.azure.data.tables.sas.TableAccountSasPermission;
import com.azure.data.tables.sas.TableAccountSasResourceType;
import com.azure.data.tables.sas.TableAccountSasService;
import com.azure.data.tables.sas.TableAccountSasSignatureValues;
import com.azure.data.tables.sas.TableSasIpRange;
import com.azure.data.tables.sas.TableSasPermission;
import com.azure.data.tables.sas.TableSasProtocol;
import com.azure.data.tables.sas.TableSasSignatureValues;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Signatures that the SDK makes, stored access policies, and credentials that are updated while they are in use. */
class SignaturesTest extends ServiceUnderTest {
    private static final String ENDPOINT = setting("TABLESTONE_TEST_ENDPOINT");
    private static final OffsetDateTime START = OffsetDateTime.parse("2026-01-02T03:04:05Z");
    private static final OffsetDateTime END = OffsetDateTime.parse("2099-01-02T03:04:05Z");

    private static TableServiceClientBuilder builder() {
        return new TableServiceClientBuilder().endpoint(ENDPOINT)
            .retryOptions(new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(1))));
    }

    private static TableServiceClient signed(String token) {
        return builder().credential(new AzureSasCredential(token)).buildClient();
    }

    private static OffsetDateTime soon() {
        return OffsetDateTime.now().plusHours(1);
    }

    private static TableAccountSasSignatureValues ofAccount(String permissions, String resources) {
        return new TableAccountSasSignatureValues(soon(), TableAccountSasPermission.parse(permissions),
            new TableAccountSasService().setTableAccess(true), TableAccountSasResourceType.parse(resources));
    }

    private static TableSasSignatureValues ofTable(String permissions) {
        return new TableSasSignatureValues(soon(), TableSasPermission.parse(permissions));
    }

    private TableClient limited(TableSasSignatureValues values) {
        return signed(table.generateSas(values)).getTableClient(table.getTableName());
    }

    private static List<String> keysIn(TableClient client) {
        return client.listEntities(new ListEntitiesOptions(), null, null).stream()
            .map(entity -> entity.getPartitionKey() + "/" + entity.getRowKey()).collect(Collectors.toList());
    }

    private void fill() {
        for (String keys : List.of("EWR/1", "JFK/1", "JFK/2", "LGA/1")) {
            table.createEntity(new TableEntity(keys.substring(0, 3), keys.substring(4)));
        }
    }

    @Test
    void accountSignature() {
        TableServiceClient service = signed(SERVICE.generateAccountSas(ofAccount("rwdlacu", "sco")));
        TableClient made = service.createTable(freshName("java"));
        made.createEntity(entity("it's +%20"));
        made.upsertEntity(entity("it's +%20", "N", 1));
        made.submitTransaction(List.of(new TableTransactionAction(TableTransactionActionType.CREATE, entity("s"))));
        assertEquals(List.of("p/it's +%20", "p/s"), keysIn(made));
        assertTrue(service.listTables().stream().anyMatch(item -> item.getName().equals(made.getTableName())));
        service.deleteTable(made.getTableName());
    }

    @Test
    void accountSignatureNeedsLetterAndResource() {
        TableClient reader = signed(SERVICE.generateAccountSas(ofAccount("rl", "sco")))
            .getTableClient(table.getTableName());
        assertEquals(List.of(), keysIn(reader));
        assertFails(403, "AuthorizationPermissionMismatch", null, () -> reader.createEntity(entity("r")));
        TableClient tables = signed(SERVICE.generateAccountSas(ofAccount("rwdlacu", "c")))
            .getTableClient(table.getTableName());
        assertFails(403, "AuthorizationResourceTypeMismatch", null, () -> tables.createEntity(entity("r")));
    }

    @Test
    void signatureInAConnectionString() {
        fill();
        String text = "TableEndpoint=" + ENDPOINT + ";SharedAccessSignature="
            + SERVICE.generateAccountSas(ofAccount("rl", "sco"));
        TableServiceClient service = new TableServiceClientBuilder().connectionString(text).buildClient();
        assertEquals(4, keysIn(service.getTableClient(table.getTableName())).size());
    }

    @Test
    void tableSignature() {
        fill();
        TableClient limited = limited(ofTable("ra"));
        limited.createEntity(new TableEntity("JFK", "3"));
        assertEquals(List.of("EWR/1", "JFK/1", "JFK/2", "JFK/3", "LGA/1"), keysIn(limited));
        assertEquals("2", limited.getEntity("JFK", "2").getRowKey());
        assertFails(403, "AuthorizationPermissionMismatch", null,
            () -> limited.upsertEntity(new TableEntity("JFK", "3")));
        assertFails(403, "AuthorizationFailure", null, limited::deleteTable);
        TableServiceClient service = signed(table.generateSas(ofTable("raud")));
        assertFails(403, "AuthorizationFailure", null, () -> service.createTable(freshName("java")));
        assertFails(403, "AuthenticationFailed", null,
            () -> service.getTableClient(freshName("java")).createEntity(entity("r")));
    }

    @Test
    void rangeOfKeys() { // auth 3.6
        fill();
        TableClient limited = limited(ofTable("raud")
            .setStartPartitionKey("EWR").setStartRowKey("2").setEndPartitionKey("JFK").setEndRowKey("1"));
        assertEquals(List.of("JFK/1"), keysIn(limited));
        limited.upsertEntity(new TableEntity("JFK", "1").addProperty("N", 1));
        for (String keys : List.of("EWR/1", "JFK/2", "LGA/1")) {
            TableEntity outside = new TableEntity(keys.substring(0, 3), keys.substring(4));
            assertFails(404, "ResourceNotFound", null,
                () -> limited.getEntity(outside.getPartitionKey(), outside.getRowKey()));
            assertFails(403, "AuthorizationFailure", null, () -> limited.upsertEntity(outside));
            assertFails(403, "AuthorizationFailure", null, () -> limited.createEntity(outside));
        }
        assertEquals(4, keysIn(table).size());
    }

    @Test
    void conditions() {
        assertFails(403, "AuthenticationFailed", null, () -> limited(
            new TableSasSignatureValues(START, TableSasPermission.parse("ra"))).createEntity(entity("r")));
        assertFails(403, "AuthenticationFailed", null, () -> limited(
            new TableSasSignatureValues(END.plusHours(1), TableSasPermission.parse("ra")).setStartTime(END))
            .createEntity(entity("r")));
        assertFails(403, "AuthorizationSourceIPMismatch", null, () -> limited(
            ofTable("ra").setSasIpRange(TableSasIpRange.parse("10.0.0.1"))).createEntity(entity("r")));
        assertFails(403, "AuthorizationProtocolMismatch", null, () -> limited(
            ofTable("ra").setProtocol(TableSasProtocol.HTTPS_ONLY)).createEntity(entity("r")));
        limited(ofTable("ra").setProtocol(TableSasProtocol.HTTPS_HTTP)
            .setSasIpRange(TableSasIpRange.parse("127.0.0.0-127.0.0.9"))).createEntity(entity("r"));
        assertEquals(List.of("r"), rowKeys());
    }

    @Test
    void signatureUpdatedInUse() {
        AzureSasCredential used = new AzureSasCredential(table.generateSas(ofTable("r")));
        TableClient client = builder().credential(used).buildClient().getTableClient(table.getTableName());
        assertFails(403, "AuthorizationPermissionMismatch", null, () -> client.createEntity(entity("r")));
        used.update(table.generateSas(ofTable("ra")));
        client.createEntity(entity("r"));
        used.update(table.generateSas(new TableSasSignatureValues(START, TableSasPermission.parse("ra"))));
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("s")));
        used.update(SERVICE.generateAccountSas(ofAccount("rl", "sco")));
        assertEquals(List.of("p/r"), keysIn(client));
    }

    @Test
    void keyUpdatedInUse() {
        AzureNamedKeyCredential used = new AzureNamedKeyCredential(setting("TABLESTONE_TEST_ACCOUNT"), "bm90IGl0");
        TableClient client = builder().credential(used).buildClient().getTableClient(table.getTableName());
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("r")));
        used.update(setting("TABLESTONE_TEST_ACCOUNT"), setting("TABLESTONE_TEST_KEY"));
        client.createEntity(entity("r"));
        used.update(setting("TABLESTONE_TEST_ACCOUNT"), "bm90IGl0");
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("s")));
    }

    private static TableSignedIdentifier policy(String id, String permissions, OffsetDateTime start,
        OffsetDateTime expiry) {
        return new TableSignedIdentifier(id).setAccessPolicy(
            new TableAccessPolicy().setPermissions(permissions).setStartsOn(start).setExpiresOn(expiry));
    }

    @Test
    void policiesAreGivenBackAsTheyWereSet() {
        assertNull(table.getAccessPolicies().getIdentifiers()); // this SDK's word for none
        table.setAccessPolicies(List.of(policy("full", "raud", START, END), policy("<&>", "r", null, null)));
        List<TableSignedIdentifier> found = table.getAccessPolicies().getIdentifiers();
        assertEquals(List.of("full", "<&>"),
            found.stream().map(TableSignedIdentifier::getId).collect(Collectors.toList()));
        TableAccessPolicy full = found.get(0).getAccessPolicy();
        assertEquals("raud", full.getPermissions());
        assertEquals(START.toInstant(), full.getStartsOn().toInstant());
        assertEquals(END.toInstant(), full.getExpiresOn().toInstant());
        List<TableSignedIdentifier> six = IntStream.range(0, 6).mapToObj(
            number -> policy("id" + number, "r", null, null)).collect(Collectors.toList());
        assertRefused(400, () -> table.setAccessPolicies(six));
        table.setAccessPolicies(Collections.emptyList());
        assertNull(table.getAccessPolicies().getIdentifiers());
    }

    @Test
    void policyActsOnTheNextRequest() {
        TableClient client = limited(new TableSasSignatureValues("writers"));
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("a")));
        table.setAccessPolicies(List.of(policy("writers", "a", START, END)));
        client.createEntity(entity("a"));
        table.setAccessPolicies(List.of(policy("writers", "r", START, END)));
        assertFails(403, "AuthorizationPermissionMismatch", null, () -> client.createEntity(entity("b")));
        table.setAccessPolicies(List.of(policy("writers", "a", START, START.plusDays(1))));
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("b")));
        table.setAccessPolicies(Collections.emptyList());
        assertFails(403, "AuthenticationFailed", null, () -> client.createEntity(entity("b")));
        assertEquals(List.of("a"), rowKeys());
    }
}
