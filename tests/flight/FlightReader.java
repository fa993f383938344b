// A Flight client in Java, which knows nothing of nandarray: lists flights, reads commands, and prints what it got.
// Arguments: location, bearer token, commands. tests/python/test_flight.py runs it.

import java.nio.charset.StandardCharsets;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.auth2.BearerCredentialWriter;
import org.apache.arrow.flight.grpc.CredentialCallOption;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;

public class FlightReader {
    public static void main(String[] words) throws Exception {
        CallOption token = new CredentialCallOption(new BearerCredentialWriter(words[1]));
        try (RootAllocator memory = new RootAllocator();
                FlightClient client = FlightClient.builder(memory, new Location(words[0])).build()) {
            for (FlightInfo info : client.listFlights(Criteria.ALL, token)) {
                System.out.println("listed " + String.join("/", info.getDescriptor().getPath()));
            }
            for (int word = 2; word < words.length; word++) {
                byte[] command = words[word].getBytes(StandardCharsets.UTF_8);
                read(client, client.getInfo(FlightDescriptor.command(command), token), token);
            }
            fail(() -> client.getInfo(FlightDescriptor.path("nothing"), token));
            fail(() -> client.getInfo(FlightDescriptor.path("nothing")));
        }
    }

    // Print the number of rows, and the sum of the numbers in their first column.
    private static void read(FlightClient client, FlightInfo info, CallOption token) throws Exception {
        long rows = 0;
        long sum = 0;
        for (FlightEndpoint endpoint : info.getEndpoints()) {
            try (FlightStream stream = client.getStream(endpoint.getTicket(), token)) {
                while (stream.next()) {
                    FieldVector column = stream.getRoot().getVector(0);
                    rows += column.getValueCount();
                    if (column instanceof FixedSizeListVector tensors) {
                        column = tensors.getDataVector();
                    }
                    for (int i = 0; i < column.getValueCount(); i++) {
                        sum += ((Number) column.getObject(i)).longValue();
                    }
                }
            }
        }
        System.out.println("read " + rows + " " + sum);
    }

    private static void fail(Runnable call) {
        try {
            call.run();
        } catch (FlightRuntimeException error) {
            System.out.println("failed " + error.status().code());
        }
    }
}
