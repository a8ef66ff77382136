import type { PlaneEventMap, PlaneEvents } from '@isthmus/tunnel';

/** Listeners by event. */
export type Subscriptions = { readonly [Name in keyof PlaneEventMap]?: (...args: PlaneEventMap[Name]) => void };

/** Adds listeners for events. @returns a function that removes them */
export function subscribe(events: PlaneEvents, subscriptions: Subscriptions): () => void {
  // `Subscriptions` gives each listener the arguments of its event; the type of Object.entries() loses that.
  const entries = Object.entries(subscriptions) as [keyof PlaneEventMap, () => void][];
  for (const [name, listener] of entries) events.on(name, listener);
  return () => {
    for (const [name, listener] of entries) events.off(name, listener);
  };
}
