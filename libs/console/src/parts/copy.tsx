import { useEffect, useState } from 'preact/hooks';

/** How long the button says that it has copied, in milliseconds. */
const SAID_MS = 2000;

/** A command line, and a button that copies it. The clipboard is closed to pages in plain text from elsewhere: then the line is there to select. */
export function CopyLine({ line }: { readonly line: string | undefined }) {
  const [said, say] = useState('');
  useEffect(() => {
    if (said === '') return undefined;
    const timer = setTimeout(() => say(''), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  if (line === undefined) return <p class="none">A name of this dial has characters that no terminal should get.</p>;
  const copy = () => {
    const done = navigator.clipboard?.writeText(line) ?? Promise.reject();
    done.then(
      () => say('Copied'),
      () => say('Select it and copy'),
    );
  };
  return (
    <p class="copy">
      <code>{line}</code>
      <button type="button" onClick={copy}>
        Copy
      </button>
      <span role="status">{said}</span>
    </p>
  );
}
