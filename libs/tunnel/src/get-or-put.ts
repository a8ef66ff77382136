/** Returns the value under a key. If there is none, creates and stores it first. */
export function getOrPut<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
