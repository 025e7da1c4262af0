/** A browser with JupyterLab, and the usual actions of a person. */
import { createRequire } from 'node:module';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

// playwright-core is a development dependency of the extension
const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const { chromium } = require('playwright-core');

// expected console errors: refused calls, unavailable servers, killed kernels
const NOISE = [
  /favicon/,
  /source map/i,
  /ERR_CONNECTION/,
  /WebSocket connection to/,
  /status of (400|403|503|504)/,
  /debugger state/,
  /subshell creation failed/,
  /Directory not found/
];

/** Open JupyterLab, run the test function, and fail on page errors. */
export async function inLab(url, story, { width = 1280, height = 800 } = {}) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage']
  });
  const pageErrors = [];
  try {
    const page = await browser.newPage({ viewport: { width, height } });
    page.setDefaultTimeout(30_000);
    const recordError = text => NOISE.some(pattern => pattern.test(text)) || pageErrors.push(text);
    // the server answers 404 for a folder while a file in it is renamed, as every save does
    await page.addLocatorHandler(
      page.locator('.jp-Dialog', { hasText: 'Directory not found' }),
      dialog => dialog.locator('.jp-Dialog-button').last().click()
    );
    page.on('pageerror', error => recordError(String(error)));
    const ofSaving = line =>
      /status of 404/.test(line.text()) && line.location().url.includes('/api/contents');
    page.on(
      'console',
      line =>
        line.type() === 'error' &&
        !ofSaving(line) &&
        recordError(`${line.text()} ${line.location().url}`.trim())
    );
    await page.goto(url, { timeout: 60_000 });
    await page.waitForFunction(() => window.jupyterapp !== undefined, undefined, {
      timeout: 60_000
    });
    await page.evaluate(() => window.jupyterapp.restored);
    const lab = new Lab(page, pageErrors);
    await lab.installCellReader();
    await lab.closeNewsQuestion();
    try {
      await story(lab);
    } catch (error) {
      await lab.shot('failure', process.env.GPUSHARE_UI_RESULTS ?? 'tests/ui/results');
      throw error;
    }
  } finally {
    await browser.close();
  }
}

export class Lab {
  constructor(page, pageErrors) {
    this.page = page;
    this.pageErrors = pageErrors;
    this.panel = page.locator('#jupyter-gpushare');
  }

  /** Run a JupyterLab command. */
  command(id, args = {}) {
    return this.page.evaluate(
      ([id, args]) => window.jupyterapp.commands.execute(id, args).then(() => undefined),
      [id, args]
    );
  }

  async showPanel() {
    await this.command('gpushare:show');
    await this.panel.waitFor();
  }

  /** Layout for screenshots: no file browser, a wider sidebar. */
  async arrange(widerBy = 90) {
    await this.command('application:toggle-left-area');
    const box = await this.panel.boundingBox();
    const { x, y } = { x: box.x - 2, y: box.y + 300 };
    await this.page.mouse.move(x, y);
    await this.page.mouse.down();
    await this.page.mouse.move(x - widerBy, y, { steps: 5 });
    await this.page.mouse.up();
  }

  /** The card of one notebook in the sidebar. */
  card(name) {
    return this.panel.locator('.jp-GpuShare-card', {
      has: this.page.locator('.jp-GpuShare-name', { hasText: name })
    });
  }

  /** A new notebook with a running kernel, under this name. */
  async notebook(name) {
    await this.page.evaluate(async name => {
      const app = window.jupyterapp;
      // saved under its final name: renaming makes the server answer 404 for the folder
      const content = { cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5 };
      await app.serviceManager.contents.save(name, { type: 'notebook', format: 'json', content });
      const widget = await app.commands.execute('docmanager:open', {
        path: name,
        factory: 'Notebook',
        kernel: { name: 'python3' }
      });
      await widget.context.ready;
      await widget.sessionContext.ready;
    }, name);
  }

  /** Show a launcher. */
  async launcher() {
    await this.page.evaluate(async () => {
      const app = window.jupyterapp;
      const there = [...app.shell.widgets('main')].find(widget => widget.id.startsWith('launcher'));
      there === undefined
        ? await app.commands.execute('launcher:create')
        : app.shell.activateById(there.id);
    });
    await this.page.locator('.jp-LauncherCard:visible').first().waitFor();
  }

  /** Rename the new current notebook, once its kernel runs. */
  async rename(name) {
    await this.page.waitForFunction(
      () =>
        window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel !== undefined &&
        window.jupyterapp.shell.currentWidget.context.isReady
    );
    await this.page.evaluate(async name => {
      const { context } = window.jupyterapp.shell.currentWidget;
      await context.save();
      await context.rename(name);
    }, name);
    await this.card(name).waitFor();
  }

  /** Activate a notebook. */
  async front(name) {
    await this.command('docmanager:open', { path: name });
  }

  /** Append a cell with this code and run it; returns its index at once. */
  run(name, code) {
    return this.page.evaluate(
      async ([name, code]) => {
        const app = window.jupyterapp;
        const widget = await app.commands.execute('docmanager:open', { path: name });
        const notebook = widget.content;
        const cells = notebook.model.sharedModel;
        const last = notebook.widgets.length - 1;
        const empty = last >= 0 && notebook.widgets[last].model.sharedModel.getSource() === '';
        const index = empty ? last : last + 1;
        if (!empty) {
          cells.insertCell(index, { cell_type: 'code', source: '' });
        }
        notebook.widgets[index].model.sharedModel.setSource(code);
        notebook.activeCellIndex = index;
        void app.commands.execute('notebook:run-cell');
        return index;
      },
      [name, code]
    );
  }

  /** Wait until a cell is done; returns {prompt, text}. */
  async done(name, index, timeout = 60_000) {
    await this.page.waitForFunction(
      ([name, index]) => window.__cell(name, index)?.busy === false,
      [name, index],
      { timeout, polling: 100 }
    );
    return this.cell(name, index);
  }

  /** The current output of a cell. */
  async cell(name, index) {
    return this.page.evaluate(([name, index]) => window.__cell(name, index), [name, index]);
  }

  /** Define `window.__cell`, which reads cells of open notebooks, also of hidden ones. */
  async installCellReader() {
    await this.page.evaluate(() => {
      window.__cell = (name, index) => {
        const widgets = [...window.jupyterapp.shell.widgets('main')];
        const panel = widgets.find(widget => widget.context?.path === name);
        const cell = panel?.content.widgets[index];
        if (cell === undefined) {
          return null;
        }
        const outputs = cell.model.outputs.toJSON();
        const text = outputs
          .map(
            out =>
              out.text ??
              out.data?.['text/plain'] ??
              [out.ename, out.evalue].filter(Boolean).join(': ')
          )
          .map(part => (Array.isArray(part) ? part.join('') : part))
          .join('\n');
        const prompt = cell.promptNode?.textContent ?? '';
        return { busy: prompt.includes('*'), prompt, text };
      };
    });
  }

  /** Close JupyterLab's question about news, which covers buttons of the sidebar. */
  async closeNewsQuestion() {
    const question = this.page.locator('.Toastify__toast', { hasText: 'official Jupyter news' });
    await question.waitFor({ timeout: 3000 }).then(
      () => question.getByRole('button', { name: 'No', exact: true }).click(),
      () => undefined
    );
    await question.waitFor({ state: 'detached' });
  }

  dialogs() {
    return this.page.locator('.jp-Dialog').allTextContents();
  }

  notifications() {
    return this.page.locator('.Toastify__toast').allTextContents();
  }

  async shot(name, folder) {
    mkdirSync(folder, { recursive: true });
    // wait for the animation of notifications
    await this.page
      .waitForFunction(() => document.querySelector('.Toastify--animate') === null, undefined, {
        timeout: 5000
      })
      .catch(() => undefined);
    await this.page.screenshot({ path: join(folder, `${name}.png`) });
  }
}
