import { useEffect, useRef, useState } from 'preact/hooks';
import { DialFeed } from '../model/feed.ts';
import { reasonOf, watchDials } from '../rpc/client.ts';
import type { Watched } from '../rpc/messages.ts';

/** Where dials are read. */
export interface Source {
  readonly id: string;
  readonly origin: string;
}

/** The page is drawn at most so often, however many dials there are. */
const DRAW_MS = 250;
const RETRY_MS = 2000;
const RECENT_DIALS = 300;
const DETAILS = { phases: true, firstBytes: true };

/** Follows the dials of members. @returns the feed, and why members cannot be followed; a new value at each change */
export function useDials(sources: readonly Source[], filter: Watched, paused: boolean) {
  const feed = useRef(new DialFeed());
  const [, draw] = useState(0);
  const [faults, setFaults] = useState<Readonly<Record<string, string>>>({});
  const key = JSON.stringify([sources, filter]);
  // `key` stands for sources and filter.
  useEffect(() => {
    if (paused) return undefined;
    const end = new AbortController();
    feed.current.clear();
    setFaults({});
    for (const source of sources) {
      // The same object unless it changes: a new one draws the page, and this is called for each dial.
      const said = (fault: string) =>
        setFaults((before) => ((before[source.id] ?? '') === fault ? before : { ...before, [source.id]: fault }));
      void follow(source, { filter, feed: feed.current, said, signal: end.signal });
    }
    const timer = setInterval(() => draw(feed.current.version), DRAW_MS);
    return () => {
      clearInterval(timer);
      end.abort();
    };
  }, [key, paused]);
  return { feed: feed.current, faults: Object.entries(faults).filter(([, fault]) => fault !== '') };
}

interface Following {
  readonly filter: Watched;
  readonly feed: DialFeed;
  readonly said: (fault: string) => void;
  readonly signal: AbortSignal;
}

/** Reads one member's dials, again and again. */
async function follow({ id, origin }: Source, { filter, feed, said, signal }: Following): Promise<void> {
  while (!signal.aborted) {
    try {
      for await (const { dial, lost } of watchDials(origin, { ...filter, recent: RECENT_DIALS, ...DETAILS }, signal)) {
        if (signal.aborted) return;
        if (lost > 0) feed.skip(id, lost);
        if (dial) feed.take(id, dial);
        said('');
      }
      said('it ended the stream');
    } catch (error) {
      if (!signal.aborted) said(reasonOf(error));
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
