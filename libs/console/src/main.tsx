import { render } from 'preact';
import { App } from './app.tsx';
import { readSettings } from './rpc.ts';

const place = document.getElementById('app');
if (place) {
  readSettings().then(
    (settings) => render(<App settings={settings} />, place),
    (error: Error) => render(<p role="alert">The console cannot start: {error.message}</p>, place),
  );
}
