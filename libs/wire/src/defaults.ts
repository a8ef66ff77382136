import { bufferSizes, poolBytes } from '@isthmus/runtime';

/**
 * Times, sizes and counts of wire: times in milliseconds, sizes in bytes. A connection may have others (`Config`). Those that say "of the
 * process" are shared by all its connections.
 */
export const WIRE = {
  /** The first receive window of a link's streams. */
  windowBytes: bufferSizes.window,
  /** Pieces of a Duplex's write that are shorter than this on average are joined first. Otherwise each would be a write to the socket. */
  shortPieceBytes: 1024,
  /** Streams that the other side of a link may have open. More are refused. */
  streams: 100_000,
  /** The longest frame that a link accepts: one read of a socket fits into it. */
  frameBytes: 64 * 1024,
  /** The longest head that a link accepts, with what each frame costs. A longer one is answered with 431; twice as long, it ends the connection. */
  headBytes: 64 * 1024,
  /** The most fields of a head, with the same answers. A dial has ten; 1,500 fit into the bytes, and take 2 ms of processor time. */
  headFields: 256,
  /** How long a head of several frames may take. Then the connection ends. */
  headMs: 10_000,
  /**
   * What all connections of the process together keep of heads of several frames, beyond the first of each, until the last has come. A head that
   * finds no room ends its connection.
   */
  unfinishedHeadBytes: 16 * 1024 * 1024,
  /** A peer that has not sent its first SETTINGS by then is closed. Only with a keepalive. */
  greetingMs: 10_000,
  /** A PING of the keepalive that has no answer by then ends the connection. Go's default. */
  pingAnswerMs: 20_000,
  /** PINGs that may wait for their answers. More are not sent. */
  pings: 16,
  /** A PING behind less than this measures the path, and not what waits on it. On a path of 1 Mbit/s these bytes take 82 ms. */
  quietBytes: 10 * 1024,
  /** The answer to a PING of a gRPC client waits this long for other frames. Without them, each answer would cause the client's next PING. */
  pongMs: 100,
  /** The answer to a PING of a gRPC client leaves at once with a write of this size or more. */
  pongBytes: 1_024,
  /** An end of a stream for which nobody waits leaves with other frames, or after this time. */
  lateMs: 10,
  /** Frames that wait for others leave at once when they are together more than this. */
  lateBytes: 1_024,
  /** A peer has this long to read our GOAWAY and to close. Then the connection is cut. */
  lingerMs: 1_000,
  /** A peer has this long to read the last bytes after the last stream, or the last call, has ended. Then it is cut. */
  flushMs: 20_000,
  /** The longest reason in a GOAWAY, in characters. The rest is cut off: it must fit into a frame. */
  reasonChars: 1000,
  /** Ends of streams and connections that the process handles in one tick of the event loop. Each may take 0.5 ms. */
  closingsATick: 16,
  /**
   * What all connections of the process together read in one tick of the event loop. Those with much to read then rest until the next one.
   * Node would read up to 2 MiB of one socket, which takes 5 ms with TLS.
   */
  readATickBytes: 512 * 1024,
  /**
   * What each head counts for there, beside its fields and three times its block, be it a request, an answer or trailers: all connections together read
   * some 25 in a tick, one at least 3. A request that is answered at once takes 0.1 ms, longer than reading this much, and 64 KiB hold 5,000 of them.
   * One of 39 kB in Huffman's code takes 0.3 ms to unpack, one of 240 fields 0.1 ms.
   */
  headReadBytes: 16 * 1024,
  /**
   * What each frame counts for there, each field of a head, and each piece that comes by itself: all connections together read some 1,000 in a
   * tick, one at least 128. A frame takes 2 microseconds, and 64 KiB hold 6,500 with one byte each. 40 connections of one tenant full of them
   * held up another's dials for .5 s.
   */
  frameReadBytes: 512,
  /** What the connections of each tenant may read in a tick, even if others have read much: one read of a socket. It is also their turn. */
  readAtLeastBytes: 64 * 1024,
  /** Bytes of answers and heads that may wait for a peer on a link that does not read. Beyond that, the connection ends. */
  backlogBytes: 8 * 1024 * 1024,
  /** Streams that the other side of a link may cancel, break or have refused in `resetsMs`. More end the connection. */
  resets: 10_000,
  /** The period over which reset streams are counted (CVE-2023-44487). */
  resetsMs: 10_000,
  /** Ends of streams by the peer that are remembered. A later frame on one of them is an error, and not one that crossed our own end. */
  rememberedEnds: 64,
  /** Informational heads ahead of a response. More end the stream. */
  informationalHeads: 16,
  /**
   * The largest burst of frames that carry nothing: a PING costs 1, which is 2 microseconds of processor time. More end the connection
   * (CVE-2019-9512 and similar).
   */
  floodBurst: 10_000,
  /** What each second adds to the budget for frames that carry nothing. */
  floodPerSecond: 1_000,
  /** What SETTINGS and GOAWAY cost of that budget, because they may visit every stream: 50 in a burst. Go's clients send 8. */
  floodPass: 200,
  /** What a new stream adds to that budget. */
  floodEarnedByStream: 4,
  /** What each DATA frame that is sent adds to that budget: its receiver sends window updates, and measures with PINGs. */
  floodEarnedByFrame: 4,
  /** What each byte of DATA adds to that budget. */
  floodEarnedByByte: 1 / 512,
  /** Marks that a stream accepts at once. More end the stream. */
  marksAtOnce: 256,
  /** Marks that a stream accepts in a second. */
  marksPerSecond: 16,
  /** Marks that each DATA frame of a stream adds, in either direction. */
  marksByFrame: 4,
  /**
   * DATA that leaves in one write, with the heads of its frames. With what TLS adds, it is just below the 64 KiB of an IP packet. Twice as
   * much costs twice the time per byte, and PINGs wait behind it.
   */
  writeBytes: 65_300,
  /** A write ends early rather than with a frame shorter than this. */
  shortestFrameBytes: 1024,
  /** Up to this size, the parts of a write are copied into one buffer, which costs less than to pass on each. */
  mergedWriteBytes: 4 * 1024,
  /**
   * Streams that may have bulk at hand; the writers of others wait to be asked. Bytes that wait behind the socket outlive young garbage
   * collections: with 256 streams, V8 collected the whole heap forty times a second.
   */
  readyStreams: 16,
  /** Streams of each group that may have bulk at hand, even if there are many groups. */
  readyStreamsOfGroup: 2,
  /** What a group of streams sends in its turn while others wait, and the longest of its frames then. Four turns fit into a write. */
  groupTurnBytes: 16 * 1024,
  /** A stream with no more than this to send overtakes bulk of its group. */
  smallBytes: 2048,
  /** Streams of a group that may wait for their turn before those that have closed meanwhile are searched for. */
  pruneAt: 1000,
  /** What may wait in a stream before its writer is asked to pause. */
  queueAheadBytes: bufferSizes.stream,
  /** What a link may have sent, and the other process not have read, besides what the path holds, if several groups of streams share it. */
  inFlightSharedBytes: 512 * 1024,
  /** The same for a single group: nobody waits behind it. */
  inFlightAloneBytes: 4 * 1024 * 1024,
  /** What a path holds at most for each millisecond of its round-trip time: 160 MB/s. */
  pathBytesPerMs: 160 * 1024,
  /** After so much DATA at most, a link asks how fast its path is. */
  followBytes: 128 * 1024,
  /** How many checkpoints `inFlightSharedBytes` have. With fewer, the sender would pause between their answers. */
  sharedCheckpoints: 8,
  /** The same for a single group, which has a larger bound: each costs a PING and its answer. */
  aloneCheckpoints: 2,
  /** The size to which a receive window grows on any connection if its reader keeps up. With 1 MiB, bulk is a third slower. */
  localWindowBytes: 4 * 1024 * 1024,
  /** The largest receive window: 160 MB/s at a round-trip time of 100 ms. */
  largestWindowBytes: 16 * 1024 * 1024,
  /** A reader that reads half a window within this time is fast, and its window grows. */
  fastReadMs: 200,
  /**
   * A window limits its sender if half of it is read within so many round trips: often the other half was returned with it, and bytes wait on the
   * path for as long as it takes itself. With 1, a download stayed at 135 kB/s on an empty path of 300 ms.
   */
  windowRounds: 2,
  /** By how much a path may have become longer since the last bytes, as far as one delay shows it. */
  pathGrowth: 1.25,
  /** By how much of its size such a window grows. A window that doubles is always a little behind TCP's, which doubles too. */
  farGrowth: 3,
  /** How much all receive windows of the process may grow together because their round-trip times are long. */
  growthBytes: poolBytes(112 * 1024 * 1024),
  /**
   * How much they may grow together because their readers are fast. Without this limit, a process that passes bytes on fills 32 windows of
   * 4 MiB with what a slower reader has not taken.
   */
  localGrowthBytes: poolBytes(16 * 1024 * 1024),
  /** What peers together may have sent beyond windows that they did not know yet, until it is read. A tenant may use half of it. */
  excessBytes: poolBytes(16 * 1024 * 1024),
  /** A sender with less window than this has to wait: readers return window in pieces, and a few are always on their way. */
  shortWindowBytes: 256 * 1024,
  /** How often links are checked for received bytes. */
  checkEveryMs: 250,
  /** After so many checks without a byte, a side of a link sends a PING. */
  pingAfterChecks: 4,
  /** After so many checks without a byte, and those of a round trip, a link is suspected: 2.25 to 2.5 s on a short path. */
  suspectAfterChecks: 9,
  /**
   * It is dead after so many, which is three times the patience from the PING on: 4.75 to 5 s. Processes of busy machines stand still for 1.3 to
   * 1.8 s. To end a session for that costs a handshake, which makes others late.
   */
  deadAfterChecks: 19,
  /** What counts as the round trip of a link whose first PING has no answer yet. */
  unknownRoundTripMs: 3000,
  /** The longest gRPC message: Go's limit of 4 MiB for the data, plus the packet's head. A longer one ends the call. */
  messageBytes: 4 * 1024 * 1024 + 64 * 1024,
  /** Up to this length, a gRPC message is kept until it is complete. Only the data of a longer one is passed on in parts. */
  wholeMessageBytes: 16 * 1024,
  /** The length of each part of a longer message: a peer that sends single bytes must not make a packet of each. */
  messagePartBytes: 4 * 1024,
  /** Up to this length, the data of a packet is copied behind its head, which costs less than to send both. */
  copiedBytes: 1_024,
  /** While some of a call's window is held back, the peer gets this much at a time. With more, packets behind a slow reader wait longer. */
  heldBackBytes: 16 * 1024,
  /** A gRPC caller has this long to read why its call ends. Then the stream is reset. */
  callResetMs: 1_000,
  /** The longest `grpc-message`, in characters. The rest is cut off: it must fit into a frame. */
  statusChars: 4_096,
};

/** What a connection takes instead of `WIRE`. */
export type Config = { readonly [Name in keyof typeof WIRE]: number };
