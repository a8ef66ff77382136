/** The longest line: a dial with the longest names and a dozen attempts. */
const MOST_CHARACTERS = 4 * 1024 * 1024;

/** Yields the lines of a stream that are not empty. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const lines = (rest + decoder.decode(read.value, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > MOST_CHARACTERS) throw new Error(`a line is longer than ${MOST_CHARACTERS} characters`);
      yield* lines.filter((line) => line !== '');
    }
    if (rest !== '') yield rest;
  } finally {
    await reader.cancel().catch(() => {});
  }
}
