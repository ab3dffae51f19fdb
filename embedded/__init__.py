"""The embedded cluster: real ZooKeeper, Kafka and YARN servers on one machine's loopback interface."""
