// kafka-go as an application uses it: Conn, Writer and Reader. It picks the highest of fixed versions (Produce 2/3/7,
// Fetch 2/5/10) and ignores a broker's lowest. The first argument is the bootstrap address, the second the test.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(right bool, format string, words ...any) {
	if !right {
		must(fmt.Errorf(format, words...))
	}
}

func newTopic(bootstrap string, partitions int) string {
	name := "go-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	conn, err := kafka.Dial("tcp", bootstrap)
	must(err)
	defer conn.Close()
	must(conn.CreateTopics(kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}))
	return name
}

// Writer with every codec, Reader from the start; keys and headers come back.
func writerAndReader(ctx context.Context, bootstrap string) {
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		topic := newTopic(bootstrap, 1)
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap), Topic: topic, Compression: codec,
			BatchTimeout: 10 * time.Millisecond, RequiredAcks: kafka.RequireAll,
			Transport: &kafka.Transport{}, // the default one remembers for 6 s which topics there are
		}
		var messages []kafka.Message
		for n := 0; n < 100; n++ {
			messages = append(messages, kafka.Message{
				Key: []byte("k"), Value: []byte(strconv.Itoa(n)), Headers: []kafka.Header{{Key: "h", Value: []byte("1")}},
			})
		}
		must(writer.WriteMessages(ctx, messages...))
		must(writer.Close())
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, MaxWait: time.Second})
		for n := 0; n < 100; n++ {
			message, err := reader.ReadMessage(ctx)
			must(err)
			check(string(message.Value) == strconv.Itoa(n) && message.Offset == int64(n), "codec %v: %v", codec, message)
			check(len(message.Headers) == 1, "codec %v: headers %v", codec, message.Headers)
		}
		must(reader.Close())
	}
}

// Conn: the lowest level, with its own choice of versions.
func conn(ctx context.Context, bootstrap string) {
	topic := newTopic(bootstrap, 2)
	leader, err := kafka.DialLeader(ctx, "tcp", bootstrap, topic, 1)
	must(err)
	defer leader.Close()
	must(leader.SetDeadline(time.Now().Add(30 * time.Second)))
	_, err = leader.WriteMessages(kafka.Message{Value: []byte("a")}, kafka.Message{Value: []byte("b")})
	must(err)
	first, last, err := leader.ReadOffsets()
	must(err)
	check(first == 0 && last == 2, "offsets %d to %d", first, last)
	batch := leader.ReadBatch(1, 1_000_000)
	for _, expected := range []string{"a", "b"} {
		message, err := batch.ReadMessage()
		must(err)
		check(string(message.Value) == expected, "%q instead of %q", message.Value, expected)
	}
	must(batch.Close())
	partitions, err := leader.ReadPartitions(topic)
	must(err)
	check(len(partitions) == 2, "%d partitions", len(partitions))
	controller, err := leader.Controller()
	must(err)
	check(controller.Port != 0, "controller %v", controller)
	must(leader.DeleteTopics(topic))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	bootstrap := os.Args[1]
	switch os.Args[2] {
	case "writer-and-reader":
		writerAndReader(ctx, bootstrap)
	case "conn":
		conn(ctx, bootstrap)
	default:
		must(fmt.Errorf("no test %q", os.Args[2]))
	}
	fmt.Println("passed")
}
