import { render } from 'preact';
import { App } from './app.tsx';
import { holdWhilePressed } from './parts/press.ts';
import { readSettings } from './rpc.ts';

holdWhilePressed();
const place = document.getElementById('app');
if (place) {
  readSettings().then(
    (settings) => render(<App settings={settings} />, place),
    (error: Error) => render(<p role="alert">The console cannot start: {error.message}</p>, place),
  );
}
