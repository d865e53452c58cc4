// Draw images from bytes on canvases, and choose the colours of classes.

const hue = (index) =>
  `hsl(${(205 + index * 137.508) % 360} ${index % 3 === 1 ? 45 : 70}% ${[58, 70, 46][index % 3]}%)`;

function canvasOf(width, height, label, colorAt) {
  const canvas = h("canvas", { width, height, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [color, alpha] = colorAt(x, y);
      context.globalAlpha = alpha;
      context.fillStyle = color;
      context.fillRect(x, y, 1, 1);
    }
  return canvas;
}

function greyPicture({ width, height, grey }, label) {
  const values = bytes(grey);
  return canvasOf(width, height, label, (x, y) => {
    const level = values[y * width + x];
    return [`rgb(${level} ${level} ${level})`, 1];
  });
}
