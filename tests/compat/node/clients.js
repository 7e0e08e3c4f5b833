// kafkajs as an application uses it: admin and producer. Its consumer always joins a group.
// The first argument is the bootstrap address, the second the test.
const assert = require('node:assert')
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [bootstrap, test] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.ERROR })

const tests = {
  async admin () {
    const admin = kafka.admin()
    await admin.connect()
    const topic = `node-${Date.now()}`
    assert.strictEqual(await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] }), true)
    assert((await admin.listTopics()).includes(topic))
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.strictEqual(metadata.topics[0].partitions.length, 3)
    const cluster = await admin.describeCluster()
    assert(cluster.brokers.some((broker) => broker.nodeId === cluster.controller))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    assert.strictEqual((await admin.fetchTopicOffsets(topic)).length, 5)
    const resources = [{ type: 2, name: topic, configNames: ['retention.ms'] }]
    const configs = await admin.describeConfigs({ resources, includeSynonyms: false })
    assert.strictEqual(configs.resources[0].configEntries[0].configValue, '604800000')
    await admin.deleteTopics({ topics: [topic] })
    await admin.disconnect()
  },

  async produce () {
    const admin = kafka.admin()
    await admin.connect()
    for (const idempotent of [false, true]) {
      for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
        const topic = `node-${Date.now()}-${idempotent}-${compression}`
        const producer = kafka.producer({ idempotent })
        await producer.connect()
        const messages = [...Array(100).keys()].map((n) => ({ key: 'k', value: `${n}`, headers: { h: '1' } }))
        const [sent] = await producer.send({ topic, messages, compression })
        assert.strictEqual(sent.errorCode, 0)
        assert.strictEqual(sent.baseOffset, '0')
        await producer.disconnect()
        const [offsets] = await admin.fetchTopicOffsets(topic)
        assert.strictEqual(offsets.high, '100')
      }
    }
    await admin.disconnect()
  }
}

tests[test]().then(() => console.log('passed'), (error) => { console.error(error); process.exit(1) })
