/**
 * Times, sizes and counts of what all programs share: sockets, names, certificates, buffers. Times are in milliseconds, sizes in bytes.
 */
export const RUNTIME = {
  /**
   * Connections that the kernel keeps for a TCP port until the process accepts them: Node's default. A peer that finds no place tries again after
   * a second, two, four, and so on, which spreads a herd. With 4,096, the 3,000 agents of a dead hub queued for so long that each gave up
   * during its handshake.
   */
  tcpBacklog: 511,
  /** The same for a unix socket, where connect fails at once if there is no place. net.core.somaxconn caps both. */
  unixBacklog: 4096,
  /** A tick of the event loop in which hardly a connection comes, in milliseconds: one with a handshake takes longer. */
  shortTickMs: 0.5,
  /** How long a busy process waits for such a tick before it stops listening. */
  queueMs: 1000,
  /** How long a connection to a unix socket may take before its process counts as alive. */
  socketAnswerMs: 1000,
  /** How often a process looks whether its unix socket's file is still there. It makes a missing one again. */
  socketLookMs: 1000,
  /** When it touches the file, so that cleaners that go by age leave it: those of /tmp take what nobody has touched for days. */
  socketAgedMs: 3_600_000,
  /** How often another process may be faster to take a unix socket's path before this one gives up. */
  socketTries: 10,

  /** The largest file that a flag or another file names, unless something else is said there. The CA bundles of systems have 250 KB. */
  namedFileBytes: 1024 * 1024,
  /** The largest of the files by which names are resolved. Hosts files that list advertisers have 5 MB. */
  nameFileBytes: 16 * 1024 * 1024,

  /** How long a load balancer may take to send its PROXY header; then the connection is closed. A lost packet is sent again after 3 s. */
  proxyHeaderMs: 5000,
  /** Connections of one port that may wait for their PROXY header. Further ones are refused: a load balancer sends it at once. */
  proxyHeaderConnections: 4096,
  /** The longest PROXY header of version 2 behind its first 16 bytes. Addresses take up to 216, a load balancer's own fields some hundred. */
  proxyHeaderBytes: 4096,

  /** How long a connection that has not proven who it is may keep its place when a new one finds none. 1,000 handshakes take 5 s. */
  waitingPatienceMs: 10_000,
  /**
   * How long a connection has one of its source's slots, unless its peer proves who it is: up to twice as long if it need not wait for its own. Long
   * enough for a handshake and a request over a long way.
   */
  handshakeSlotMs: 2000,
  /** Slots of a source at each kind of port: 64 handshakes a second, a tenth of a processor. Peers that prove who they are within 0.3 s get 400. */
  handshakeSlots: 128,
  /** How much a connection may send before it has a slot. A ClientHello is less. */
  waitingBytes: 16 * 1024,
  /** How long a peer may take to send its first byte; then its connection is closed. A TLS handshake with a lost SYN takes 1 s. */
  firstByteMs: 5000,
  /** Connections that may wait at each port to prove who they are, however many wait at the program's other ports. */
  waitingOwnPlaces: 4,
  /** How many groups of an IPv6 address count as one source, of 8: a host with one address has its network of 64 bits. */
  sourceIpv6Groups: 4,

  /** A connection that has been idle for so long is asked by the kernel whether its peer lives (TCP keepalive), as in Go. */
  keepAliveIdleMs: 15_000,
  /** The time between two such questions. */
  keepAliveIntervalMs: 15_000,
  /** So many questions without an answer end a connection, after 150 s in all. A virtual machine may be frozen for a minute. */
  keepAliveProbes: 9,
  /** The time between the starts of two attempts to connect to a name with several addresses (RFC 8305 section 5). */
  connectApartMs: 250,

  /** How long a DNS server may take to answer the first question, unless resolv.conf says something else. A dial has 5 s for all it does. */
  nameMs: 2000,
  /** How long c-ares waits for a DNS server at most, unless it is told to wait longer. */
  caresMs: 5000,
  /** How often each DNS server is asked, unless resolv.conf says something else. */
  nameAttempts: 2,
  /** Addresses of a name that count. DNS' longest answer has 4,000: where all refuse, a dial tried each, in a fifth of a second of the processor. */
  nameAddresses: 64,
  /** Names that getaddrinfo resolves at once; others wait. libuv has two threads for it. */
  systemNames: 2,

  /** File descriptors that dials may not use. They are for answers to refused callers, health checks, links that reconnect and certificates. */
  reservedDescriptors: 64,
  /** If the process may open few files, the reserve is their number divided by this. */
  reservedDescriptorsPart: 8,
  /** Below the reserve divided by this, connections are closed as they arrive: even an answer costs too much. */
  lastDescriptorsPart: 4,
  /** How long a count of open file descriptors stays valid, at least. Counting 1,000 takes 1.5 ms, 20,000 take 25. */
  descriptorsMs: 1000,
  /** A count also stays valid for so many times as long as it took. */
  descriptorsTimes: 200,
  /** The same as `descriptorsMs`, while dials are refused because few descriptors are left. */
  scarceDescriptorsMs: 100,
  /** The same as `descriptorsTimes`, meanwhile. */
  scarceDescriptorsTimes: 20,
  /** How long a count that nobody waits for is put off. */
  descriptorsLookMs: 250,

  /** A certificate is overdue for its renewal at most this long before its end: ten weeks would be too early for one of a year. */
  renewalMs: 14 * 86_400_000,
  /** The part of its lifetime that is left when a certificate is overdue for its renewal, which automatically happens with a third left. */
  renewalPart: 0.2,
  /** How often the files of a certificate are read, to take a renewed one. Three small reads cost 0.1 ms. */
  certificateLookMs: 2000,
  /** Certificates that stay parsed: agents, callers and hubs show the same ones again and again. */
  certificates: 1024,
  /** The longest certificate that stays parsed. */
  certificateBytes: 4096,
  /** CA bundles that stay parsed: those of flags and of what a program connects to. Tenants keep their own. */
  certificateBundles: 16,
  /** Certificates of a bundle that cannot be used and are named one by one. */
  skippedNamed: 10,
  /** Public keys that stay parsed, some KB each. */
  publicKeys: 512,
  /** Certificates that a peer may send in a handshake, its own included. Honest peers send 2 to 4. More refuse it. */
  handshakeCertificates: 9,
  /** What a peer's certificates may measure together. Honest ones are 2 to 4 of 1 to 2 KB. More refuse it. */
  sentCertificatesBytes: 16 * 1024,
  /** The longest handshake message with certificates, or with the names of a server's authorities, that is read at all. */
  handshakeMessageBytes: 32 * 1024,
  /** The longest exponent of an RSA key that OpenSSL may verify with, in bits. */
  handshakeExponentBits: 33,
  /** How often a client may change its keys in `keyUpdatesMs`. OpenSSL never does by itself, others after 2^24 records or more: 256 GiB of bulk. */
  keyUpdates: 64,
  /** The period over which they are counted. */
  keyUpdatesMs: 60_000,
  /** How many of the certificates that a peer sends are looked at for a chain, besides its own. Real chains have one or two. */
  sentCertificates: 16,
  /** The most signatures that one verdict on a certificate may cost, as in Go. RSA keys above 4,096 bits count for several. */
  chainSignatures: 100,
  /** The most comparisons of a chain's names with the name constraints above them, as in Go: two lists that peers send. */
  nameComparisons: 250_000,
  /** The shortest RSA key that a certificate may have, in bits. Go takes 1,024; Node's OpenSSL shows none below this, our own or an issuer's. */
  rsaLeastBits: 2048,
  /** The longest, as in Go's TLS. */
  rsaMostBits: 8192,
  /** The longest exponent of an RSA key in a certificate, in bits, as in Go. */
  rsaExponentBits: 31,

  /** What a program needs of its memory limit before any is left for tunnels: an agent takes 21 MiB after its start, a server 35 after some dials. */
  programBytes: 32 * 1024 * 1024,
  /** Where memory is limited, buffers are so small that this many fit into what is left: two in each direction of each of 1,024 tunnels. */
  buffers: 4096,
  /** The smallest buffer of a tunnel, however little is left: with less, the objects around it weigh more than its bytes. */
  leastBufferBytes: 16 * 1024,
  /** The part of what is left for tunnels that they may hold together for one purpose: the growth of windows, packets of slow readers. There are six. */
  poolPart: 1 / 16,
  /** Buffers that died young are freed when so much was filled: this part of what is left for tunnels. */
  garbagePart: 1 / 16,
  /** ... but this is what V8 lets pile up in any case (14.6: twice its usual semi-space). */
  garbageBytes: 32 * 1024 * 1024,
  /** The part of its memory limit that a process leaves for the tunnels that it has: with less, it refuses dials. */
  memoryReservePart: 1 / 16,
  /** How long a look at the memory that is used stays valid, at least. It takes 0.2 ms. */
  memoryLookMs: 50,
  /** It also stays valid for so many times as long as it took. */
  memoryLookTimes: 50,
  /** What a stream buffers before it pauses its source. 64 KiB carries 25 to 30 % more bytes per second than 16; more costs latency under load. */
  streamBytes: 64 * 1024,
  /** What the kernel may always keep of a link that it has not sent. A path of 1 Mbit/s takes 66 ms for it. */
  unsentLeastBytes: 8 * 1024,
  /** It may keep what the path delivers in this time, in milliseconds, so that it sends on while this process is late. */
  unsentMs: 40,
  /** What may wait to be sent on a stream of a link before its writer has to pause: two reads of a socket. */
  aheadBytes: 128 * 1024,
  /** What each end of a tunnel may always keep until the other end has it: enough for paths within a site. */
  keptBaseBytes: 256 * 1024,
  /** The first receive window of a tunnel's stream: what it holds that nobody reads. The window of a stream that is read grows. */
  windowBytes: 64 * 1024,
  /** Received bytes that are less than this part of the memory that they lie in are copied where they are kept. */
  pinnedParts: 4,
  /** Received pieces that are shorter are put together where they are kept: each alone would cost more than it holds. */
  smallPieceBytes: 4 * 1024,
  /** The first block that short pieces are put together in; each further one has twice the size. */
  firstBlockBytes: 256,
  /** The largest such block. */
  lastBlockBytes: 16 * 1024,
  /** A write of at least this length waits for the stream's turn on its link. Shorter ones never wait. */
  bulkWriteBytes: 16 * 1024,
  /** A chunk of at least this length is part of a byte stream: it may wait until the end of the tick, so that several leave in one write. */
  bulkChunkBytes: 4096,

  /** Items of a queue that were taken are dropped together, at least so many: to shift out each costs a copy of the rest. */
  droppedAtOnce: 64,
  /** Random bytes that are drawn at once: a few take as long. */
  randomBytes: 4096,
  /** Up to this size, a set of dials' objects is scanned for a member. A table would take most of a small set's memory. */
  scannedMembers: 8,
  /** How often a member that will do is looked for at random before all are looked at in turn. */
  randomDraws: 4,
};
