import type { Socket } from 'node:net';

/**
 * How long a refused peer may take to ask, to read the reason and to close, in milliseconds: a busy one too, which would otherwise see only
 * a reset. Until then it counts as a stranger.
 */
const REFUSED_FOR = 5000;

/**
 * Ends a connection with an answer. What the peer still sends is read and dropped, for a while: with bytes that nobody has read, the close
 * becomes a reset, which overtakes the answer.
 */
export function answerLast(socket: Socket, answer: string): void {
  endsSoon(socket);
  socket.resume().end(answer);
}

/** Gives a refused peer a while to close. @param late called if it has not */
export function endsSoon(socket: Socket, late?: () => void): void {
  const ended = () => {
    late?.();
    socket.destroy();
  };
  const timer = setTimeout(ended, REFUSED_FOR).unref();
  socket.on('error', () => {});
  socket.on('close', () => clearTimeout(timer));
}
