/** A browser with JupyterLab in it, and the few things that a person does there. */
import { createRequire } from 'node:module';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

// playwright-core is a development dependency of the extension; there is one node_modules in this repository
const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const { chromium } = require('playwright-core');

// what Chromium itself writes when a server refuses or is away, and JupyterLab when a kernel is killed; the scripts make all of it happen
const NOISE = [
  /favicon/,
  /source map/i,
  /ERR_CONNECTION/,
  /WebSocket connection to/,
  /status of (400|503|504)/,
  /debugger state/,
  /subshell creation failed/,
  /Directory not found/
];

/** Open JupyterLab, run the story in it, and fail on whatever the page complains about. */
export async function inLab(url, story, { width = 1280, height = 800 } = {}) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage']
  });
  const complaints = [];
  try {
    const page = await browser.newPage({ viewport: { width, height } });
    page.setDefaultTimeout(30_000);
    const complain = text => NOISE.some(pattern => pattern.test(text)) || complaints.push(text);
    // Jupyter's server answers 404 for a folder while a file in it is being renamed, as every save does; a person closes that and goes on
    await page.addLocatorHandler(
      page.locator('.jp-Dialog', { hasText: 'Directory not found' }),
      dialog => dialog.locator('.jp-Dialog-button').last().click()
    );
    page.on('pageerror', error => complain(String(error)));
    const ofSaving = line =>
      /status of 404/.test(line.text()) && line.location().url.includes('/api/contents');
    page.on('console', line => line.type() === 'error' && !ofSaving(line) && complain(line.text()));
    await page.goto(url, { timeout: 60_000 });
    await page.waitForFunction(() => window.jupyterapp !== undefined, undefined, {
      timeout: 60_000
    });
    await page.evaluate(() => window.jupyterapp.restored);
    const lab = new Lab(page, complaints);
    await lab.learn();
    await lab.declineNews();
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
  constructor(page, complaints) {
    this.page = page;
    this.complaints = complaints;
    this.panel = page.locator('#jupyter-gpushare');
  }

  /** Run a command of JupyterLab's. */
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

  /** As somebody arranges it who looks at notebooks and their shares: no file browser, a wider sidebar. */
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
      // not made and then renamed: a listing of the folder in between makes Jupyter's server say that the folder is not there
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

  /** A launcher in sight: the one there is, or a new one. */
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

  /** Give the notebook in front, which has just been made, another name; its kernel runs and its server knows it by that name. */
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

  /** Bring a notebook to the front. */
  async front(name) {
    await this.command('docmanager:open', { path: name });
  }

  /** Append a cell with this code and run it; gives the cell's number at once, while it runs. */
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

  /** Wait until a cell is done; gives {prompt, text}. */
  async done(name, index, timeout = 60_000) {
    await this.page.waitForFunction(
      ([name, index]) => window.__cell(name, index)?.busy === false,
      [name, index],
      { timeout, polling: 100 }
    );
    return this.cell(name, index);
  }

  /** What a cell shows now. */
  async cell(name, index) {
    return this.page.evaluate(([name, index]) => window.__cell(name, index), [name, index]);
  }

  /** Teach the page to read cells of any open notebook, also hidden ones. */
  async learn() {
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

  /** JupyterLab asks a newcomer about its news in a corner where the sidebar's buttons are. */
  async declineNews() {
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
    // notifications fly in and out: a picture in between shows half of them
    await this.page
      .waitForFunction(() => document.querySelector('.Toastify--animate') === null, undefined, {
        timeout: 5000
      })
      .catch(() => undefined);
    await this.page.screenshot({ path: join(folder, `${name}.png`) });
  }
}
