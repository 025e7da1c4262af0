import { LabIcon } from '@jupyterlab/ui-components';

/** A half-filled chip: half a GPU. */
export const gpuIcon = new LabIcon({
  name: 'jupyter-gpushare:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M6 4h12a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm0 2v12h12V6z"/>
    <path d="M7.5 12h9v4.500h-9z"/>
    <path d="M8 1h2v3H8zM14 1h2v3h-2zM8 20h2v3H8zM14 20h2v3h-2zM1 8h3v2H1zM1 14h3v2H1zM20 8h3v2h-3zM20 14h3v2h-3z"/>
  </g>
</svg>`
});

/** The icon as a URL for launcher cards. It does not follow the theme; the color suits both. */
export const gpuIconUrl = `data:image/svg+xml,${encodeURIComponent(gpuIcon.svgstr.replace('#616161', '#1e88e5'))}`;
